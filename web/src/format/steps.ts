// When the run peaks, as the rows of a table: each phase of a few steps, or each step of many.
import type { Phase, Report } from '../wasm/report';
import { phaseName } from './words';

export interface Row {
  name: string;
  allocated: number;
  reserved: number;
  isPeak: boolean;
}

/** So many steps are told phase by phase. */
const FEW = 3;
const OF_STEP: readonly string[] = ['forward', 'backward', 'optimizer'];

export const isByStep = ({ steps = [] }: Report): boolean => steps.length > FEW;

const isPeak = ({ name, iteration }: Phase, { peak_at }: Report): boolean =>
  name === peak_at.phase && (name === 'init' || iteration === peak_at.iteration);

export function rowsOf(report: Report): Row[] {
  const { phases, peak_at } = report;
  const row = (phase: Phase): Row => ({
    name: phaseName(phase.name, phase.iteration),
    allocated: phase.allocated,
    reserved: phase.reserved,
    isPeak: isPeak(phase, report),
  });
  if (!isByStep(report)) return phases.map(row);
  const isOfStep = ({ name }: Phase): boolean => OF_STEP.includes(name);
  const steps = (report.steps ?? []).map((step, i): Row => ({
    ...step,
    name: `Step ${i + 1}`,
    isPeak: OF_STEP.includes(peak_at.phase) && peak_at.iteration === i + 1,
  }));
  const others = phases.filter((phase) => !isOfStep(phase) && phase.name !== 'batch').map(row);
  const [setUp, ...after] = others;
  return [...(setUp ? [setUp] : []), ...steps, ...after];
}

/** How many steps are run, and why. */
export function stepsOf(report: Report): string {
  if (report.model.trainable === 0) return '';
  const count = report.steps?.length ?? 2;
  const many = ['', 'One step', 'Two steps', 'Three steps'][count] ?? `${count} steps`;
  return `${many}: optimizer states are created in step 1, so it differs from later ones.`;
}
