// The page that sets one's own measurement beside the answer. It stands alone, so that the calculator weighs nothing more.
import { reason } from './format/reason';
import { bindAnswer } from './snapshot/setup';
import { parting, type History, type Point } from './snapshot/history';
import type { Message } from './snapshot/worker';
import { ticks } from './charts/ticks';
import { exact, gib, GIB } from './format/bytes';

const at = (id: string): HTMLElement => document.getElementById(id) ?? document.body;
const result = at('result');

type Child = Node | string;
function make(name: string, attributes: Record<string, string>, ...children: Child[]): HTMLElement {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
const row = (cells: string[], kind = 'td'): HTMLElement =>
  make('tr', {}, ...cells.map((cell, i) => make(i === 0 ? 'th' : kind, i === 0 ? { scope: 'row' } : {}, cell)));
const table = (head: string[], rows: string[][]): HTMLElement =>
  make(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': head.join(', ') },
    make(
      'table',
      {},
      make('thead', {}, make('tr', {}, ...head.map((cell) => make('th', { scope: 'col' }, cell)))),
      make('tbody', {}, ...rows.map((cells) => row(cells))),
    ),
  );

const percent = (share: number): string => `${share > 0 ? '+' : ''}${(100 * share).toFixed(1)} %`;

/** What two runs of one job allocate differs by far less. */
const SAME = 0.01;

/** The picture's size, and what it leaves for the words at its axes. */
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [640, 220, 56, 40];

function shape(name: string, attributes: Record<string, string | number>, text = ''): Element {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

/** Two curves of allocated bytes, each over its own events. */
function chart(measured: readonly Point[], simulated: readonly Point[]): Element {
  const most = Math.max(...[...measured, ...simulated].map(({ allocated }) => allocated), 1);
  const [x, y] = [
    (share: number): number => LEFT + share * (WIDTH - LEFT - 12),
    (bytes: number): number => HEIGHT - BOTTOM - (bytes / most) * (HEIGHT - BOTTOM - 10),
  ];
  const line = (points: readonly Point[]): string => {
    const last = Math.max(points[points.length - 1]?.event ?? 1, 1);
    const place = ({ event, allocated }: Point): string => `${x(event / last).toFixed(1)} ${y(allocated).toFixed(1)}`;
    return points.length === 0 ? '' : `M${points.map(place).join('L')}`;
  };
  const svg = shape('svg', {
    class: 'scatter',
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: 'img',
    'aria-label': `Allocated GiB over the share of each run’s events: measured and simulated, up to ${gib(most)}`,
  });
  for (const tick of ticks(most / GIB)) {
    const at = y(tick * GIB);
    svg.append(shape('path', { d: `M${x(0)} ${at}H${x(1)}` }));
    svg.append(shape('text', { x: LEFT - 6, y: at + 4, 'text-anchor': 'end' }, String(Number(tick.toFixed(3)))));
  }
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(shape('path', { d: `M${x(share)} ${y(0)}v4` }));
    const anchor = share === 1 ? 'end' : 'middle';
    svg.append(shape('text', { x: x(share), y: y(0) + 16, 'text-anchor': anchor }, `${100 * share} %`));
  }
  svg.append(
    shape('text', { x: x(0.5), y: HEIGHT - 5, 'text-anchor': 'middle' }, 'of each run’s allocator events'),
    shape('text', { transform: `translate(12 ${y(most / 2)}) rotate(-90)`, 'text-anchor': 'middle' }, 'Allocated, GiB'),
    shape('path', { class: 'measured', d: line(measured) }),
    shape('path', { class: 'simulated', d: line(simulated) }),
  );
  return svg;
}

async function start(): Promise<void> {
  const answer = await bindAnswer(location.hash);
  if ('problem' in answer) {
    at('setup').textContent = answer.problem;
    return;
  }
  at('back').setAttribute('href', `./index.html${location.hash}`);
  const { report } = answer;
  at('setup').textContent =
    `${answer.title}: ${gib(report.peak.allocated, 2)} allocated, ${gib(report.peak.reserved, 2)} reserved and ` +
    `${gib(report.peak.outside_allocator, 2)} outside of PyTorch are predicted.`;
  let history: History | null = null;

  const number = (id: string): number | null => {
    const value = Number((at(id) as HTMLInputElement).value.trim().replace(',', '.'));
    return Number.isFinite(value) && value > 0 ? value * GIB : null;
  };

  const show = (): void => {
    result.replaceChildren();
    const reserved = number('reserved') ?? history?.peak.reserved ?? null;
    const allocated = number('allocated') ?? history?.peak.allocated ?? null;
    const process = number('process');
    const rows: [string, number, number | null][] = [
      ['Allocated', report.peak.allocated, allocated],
      ['Reserved', report.peak.reserved, reserved],
      [
        'Outside of PyTorch',
        report.peak.outside_allocator,
        process !== null && reserved !== null ? process - reserved : null,
      ],
    ];
    const told = rows.filter((entry): entry is [string, number, number] => entry[2] !== null);
    if (told.length === 0) return;
    result.append(
      make('h2', {}, 'Predicted and measured'),
      table(
        ['Bytes', 'Predicted', 'Measured', 'Difference'],
        told.map(([name, ours, theirs]) => [
          name,
          gib(ours, 2),
          gib(theirs, 2),
          percent(theirs / Math.max(ours, 1) - 1),
        ]),
      ),
    );
    if (history) result.append(...story(history, answer.simulated()));
    if (reserved !== null) result.append(...keep(reserved, process, allocated));
  };

  const story = (measured: History, simulated: History): Node[] => {
    const { same, of, first } = parting(measured.large, simulated.large);
    const words = `Of ${of} allocations of a mebibyte or more, ${same} are in the simulated run in the same order.`;
    const place = (large: { bytes: number; where: string } | null): string =>
      large ? `${exact(large.bytes)}${large.where === '' ? '' : ` in ${large.where}`}` : 'nothing more';
    const parted = first
      ? ` They part first where the measured run asks for ${place(first.measured)}, and the simulated one for ${place(first.simulated)}.`
      : '';
    return [
      make('h2', {}, 'Over time'),
      chart(measured.curve, simulated.curve),
      make(
        'p',
        {},
        `Allocated bytes: measured in orange, simulated in blue, each over its own events. A snapshot tells what was asked for; blocks that PyTorch did not split are a little larger. ${words}${parted}`,
      ),
      ...(measured.notes.length > 0 ? [make('p', {}, `What the snapshot lacks: ${measured.notes.join(' ')}`)] : []),
      make('h2', {}, 'Who held the peak'),
      table(
        ['Measured, by code', 'Bytes'],
        measured.holders.slice(0, 12).map(({ where, bytes }) => [where, gib(bytes, 2)]),
      ),
      table(
        ['Simulated, by module', 'Bytes'],
        simulated.holders.slice(0, 12).map(({ where, bytes }) => [where, gib(bytes, 2)]),
      ),
    ];
  };

  const keep = (reserved: number, process: number | null, allocated: number | null): Node[] => {
    const thousandths = Math.round((reserved / report.peak.reserved) * 1000);
    const outside = process !== null && process >= reserved ? Math.round((process - reserved) / (1 << 20)) : null;
    const other = otherJob(reserved, allocated);
    if (other) return [make('p', { class: 'problem' }, other)];
    const link = make(
      'a',
      { href: `./index.html${answer.withMeasured(`${thousandths}${outside === null ? '' : `-${outside}`}`)}` },
      'Use it for answers',
    );
    const without = make('a', { href: `./index.html${answer.withMeasured('')}` }, 'without it');
    return [
      make('h2', {}, 'Keep the correction'),
      make(
        'p',
        {},
        link,
        `: the total, the interval and the verdict then take ${percent(thousandths / 1000 - 1)} of reserved bytes${outside === null ? '' : ` and ${outside} MiB outside of PyTorch`} from your run, and the link says so. Or go on `,
        without,
        '.',
      ),
    ];
  };

  /** Why a run is not one of this job, which no correction would bring nearer; "" where it may be. */
  const otherJob = (reserved: number, allocated: number | null): string => {
    const { peak, interval } = report;
    const check = 'Check the batch size, the length, the model and what trains: a correction is for the same job only.';
    const off = allocated === null ? 0 : allocated / Math.max(peak.allocated, 1) - 1;
    if (Math.abs(off) > SAME) return `Your run allocated ${percent(off)}, so it was probably another job. ${check}`;
    const ratio = reserved / Math.max(peak.reserved, 1);
    const [above, below] = [interval.high - peak.total, peak.total - interval.low];
    const far = reserved > peak.reserved + 2 * above || reserved < peak.reserved - 2 * below;
    if (ratio > 2 || ratio < 0.5 || (allocated === null && far))
      return `Your run reserved ${percent(ratio - 1)}, more than any comparable one, so it was probably another job. ${check}`;
    return '';
  };

  // Loaded with the page: reading a file asks the network for nothing.
  const spawn = (): Worker => new Worker(new URL('./snapshot/worker.ts', import.meta.url), { type: 'module' });
  let worker = spawn();
  const progress = at('progress') as HTMLProgressElement;
  const cancel = at('cancel') as HTMLButtonElement;
  const busy = (is: boolean): void => {
    progress.hidden = cancel.hidden = !is;
  };
  const say = (text: string): void => {
    busy(false);
    result.replaceChildren(make('p', { class: 'problem' }, text));
  };
  const take = (file: File): void => {
    busy(true);
    history = null;
    progress.max = Math.max(file.size, 1);
    progress.value = 0;
    worker.onmessage = ({ data }: MessageEvent<Message>) => {
      if ('read' in data) {
        progress.value = data.read;
      } else if ('problem' in data) {
        say(data.problem);
      } else {
        busy(false);
        history = data.history;
        show();
      }
    };
    worker.onerror = (event) => {
      event.preventDefault();
      say('The file could not be read.');
    };
    worker.postMessage(file);
  };
  cancel.addEventListener('click', () => {
    worker.terminate();
    worker = spawn();
    say('Cancelled.');
  });
  (at('file') as HTMLInputElement).addEventListener('change', ({ target }) => {
    const file = (target as HTMLInputElement).files?.[0];
    if (file) take(file);
  });
  addEventListener('dragover', (event) => {
    event.preventDefault();
  });
  addEventListener('drop', (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) take(file);
  });
  // The calculator's page opened this one for a file that was dropped there.
  const from = opener as Window | null;
  addEventListener('message', ({ source, origin, data }: MessageEvent<{ snapshot?: unknown }>) => {
    if (source === from && origin === location.origin && data.snapshot instanceof File) take(data.snapshot);
  });
  from?.postMessage('snapshot?', location.origin);
  for (const id of ['allocated', 'reserved', 'process']) at(id).addEventListener('input', show);
}

start().catch((error: unknown) => {
  at('setup').textContent = `The calculator could not be loaded (${reason(error)}). Load this page again.`;
});
