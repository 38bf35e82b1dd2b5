// The answer as one picture that stands alone: the sentence, the settings, the bar against the limit, its
// legend, the timeline with its axes.
import { GIB, gib, gibNumber } from '../format/bytes';
import { FACTORS } from '../format/factors';
import { gist } from '../format/gist';
import { phaseName, verdict } from '../format/words';
import type { Result } from '../wasm/ask';
import { limitScale, totalSegments } from './stack';
import { ticks } from './ticks';
import { HEIGHT, timeline, WIDTH, type Timeline } from './timeline';

/** Colours by the names of the page's tokens, resolved: a picture has no style sheet. */
export type Palette = Readonly<Record<string, string>>;

/** The tokens that a picture uses. */
export const INKS = [
  'surface',
  'surface-sunken',
  'text',
  'text-soft',
  'line-strong',
  'parameters',
  'gradients',
  'optimizer_states',
  'activations',
  'temporaries',
  'buffers_and_inputs',
  'kv_cache',
  'allocator_rounding',
  'cached',
  'outside',
] as const;

const MARGIN = 32;
/** What the scale beside the run takes. */
const AXIS = 28;
const BAR = { top: 122, height: 40 };
const LEGEND = { top: 210, row: 26, columns: 3 };
export const PICTURE_WIDTH = WIDTH + 2 * MARGIN;

export interface Picture {
  svg: string;
  width: number;
  height: number;
}

export function picture(result: Result, palette: Palette): Picture {
  const { report } = result;
  const ink = (name: string): string => palette[name] ?? '#888';
  const words = verdict(report, result.gpu.name, result.count);
  const scale = limitScale(report);
  const segments = totalSegments(report);
  const drawn = timeline(report);
  // Of the run's colours, some are gone by its peak.
  const elsewhere = FACTORS.filter(
    ({ key }) =>
      !segments.some((segment) => segment.key === key) &&
      drawn?.moments.some(({ factors }) => factors.some((factor) => factor.key === key && factor.bytes > 0)),
  );
  const entries = [
    ...segments.map(({ key, label, bytes }) => ({ key, words: `${label}: ${gibNumber(bytes, 2)} GiB` })),
    ...elsewhere.map(({ key, label }) => ({ key, words: `${label}: none at the peak` })),
  ];
  const rows = Math.ceil(entries.length / LEGEND.columns);
  const plot = LEGEND.top + rows * LEGEND.row + 56;
  const height = plot + (drawn ? HEIGHT + 2 * MARGIN : -16);
  const parts = [
    rect(0, 0, PICTURE_WIDTH, height, ink('surface')),
    text(MARGIN, 52, words.headline, ink('text'), 28, 700),
    text(MARGIN, 80, words.detail, ink('text-soft'), 16),
    text(MARGIN, 102, gist(result.model.title, result.job), ink('text-soft'), 14),
    rect(MARGIN, BAR.top, (WIDTH * scale.limit) / 100, BAR.height, ink('surface-sunken')),
  ];
  let x = MARGIN;
  for (const { key, bytes } of segments) {
    const width = (WIDTH * bytes) / scale.whole;
    parts.push(rect(x, BAR.top, Math.max(0, width - 1), BAR.height, ink(key)));
    x += width;
  }
  const limit = MARGIN + (WIDTH * scale.limit) / 100;
  parts.push(rect(limit - 1, BAR.top - 5, 2, BAR.height + 10, ink('text')));
  parts.push(
    text(limit, BAR.top + BAR.height + 22, `limit ${gib(report.gpu.usable_bytes)}`, ink('text-soft'), 13, 400, 'end'),
  );
  entries.forEach(({ key, words }, i) => {
    const left = MARGIN + (i % LEGEND.columns) * (WIDTH / LEGEND.columns);
    const top = LEGEND.top + Math.floor(i / LEGEND.columns) * LEGEND.row;
    parts.push(rect(left, top, 14, 14, ink(key)));
    parts.push(text(left + 22, top + 12.5, words, ink('text'), 14));
  });
  if (drawn) parts.push(...run(drawn, plot, ink));
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${PICTURE_WIDTH}" height="${height}" ` +
    `viewBox="0 0 ${PICTURE_WIDTH} ${height}" font-family="system-ui, sans-serif">${parts.join('')}</svg>`;
  return { svg, width: PICTURE_WIDTH, height };
}

/** The run over its events, with both axes and the names of its phases. */
function run(drawn: Timeline, top: number, ink: (name: string) => string): string[] {
  const x = (percent: number): number => MARGIN + AXIS + ((WIDTH - AXIS) * percent) / 100;
  const y = (bytes: number): number => top + HEIGHT - (HEIGHT * bytes) / drawn.top;
  const soft = ink('text-soft');
  const parts = [
    text(MARGIN, top - 28, 'GiB, over the allocator’s events; the line is what PyTorch has reserved', soft, 13),
  ];
  for (const tick of ticks(drawn.top / GIB)) {
    parts.push(rect(x(0), y(tick * GIB), WIDTH - AXIS, 1, ink('surface-sunken')));
    parts.push(text(x(0) - 6, y(tick * GIB) + 4, String(Number(tick.toFixed(3))), soft, 12, 400, 'end'));
  }
  const areas = drawn.areas.map(({ key, path }) => `<path d="${path}" fill="${ink(key)}"/>`);
  const outline = `<path d="${drawn.reserved}" fill="none" stroke="${ink('line-strong')}" vector-effect="non-scaling-stroke"/>`;
  const scale = ((WIDTH - AXIS) / WIDTH).toFixed(4);
  parts.push(`<g transform="translate(${x(0)} ${top}) scale(${scale} 1)">${areas.join('')}${outline}</g>`);
  for (const { phase, from, to } of drawn.spans) {
    const name = phaseName(phase.name, phase.iteration);
    parts.push(rect(x(from), top - 16, 1, HEIGHT + 16, ink('line-strong')));
    // About what a letter of this size takes.
    if (x(to) - x(from) > 6.5 * name.length) parts.push(text(x(from) + 5, top - 6, name, soft, 12));
  }
  parts.push(rect(x(drawn.peak) - 1, top, 2, HEIGHT, ink('text')));
  const anchor = drawn.peak > 97 ? 'end' : drawn.peak < 3 ? 'start' : 'middle';
  parts.push(text(x(drawn.peak), top + HEIGHT + 18, 'peak', ink('text'), 13, 600, anchor));
  return parts;
}

function rect(x: number, y: number, width: number, height: number, fill: string): string {
  return `<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${width.toFixed(1)}" height="${height.toFixed(1)}" fill="${fill}"/>`;
}

function text(x: number, y: number, words: string, fill: string, size: number, weight = 400, anchor = 'start'): string {
  const place = `x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}"`;
  return `<text ${place} fill="${fill}">${escape(words)}</text>`;
}

/** A model's name is whatever its file was called. */
function escape(words: string): string {
  return words.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
