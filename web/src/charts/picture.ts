// The answer as one picture that stands alone: the sentence, the bar against the limit, its legend, the timeline.
import { gib, gibNumber } from '../format/bytes';
import { verdict } from '../format/words';
import type { Result } from '../wasm/ask';
import { limitScale, totalSegments } from './stack';
import { HEIGHT, timeline, WIDTH } from './timeline';

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
const BAR = { top: 104, height: 40 };
const LEGEND = { top: 192, row: 26, columns: 3 };
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
  const rows = Math.ceil(segments.length / LEGEND.columns);
  const plot = LEGEND.top + rows * LEGEND.row + 24;
  const height = plot + (drawn ? HEIGHT + 2 * MARGIN : 0);
  const parts = [
    rect(0, 0, PICTURE_WIDTH, height, ink('surface')),
    text(MARGIN, 52, words.headline, ink('text'), 28, 700),
    text(MARGIN, 82, `${words.detail} · ${result.model.title}`, ink('text-soft'), 16),
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
  segments.forEach(({ key, label, bytes }, i) => {
    const left = MARGIN + (i % LEGEND.columns) * (WIDTH / LEGEND.columns);
    const top = LEGEND.top + Math.floor(i / LEGEND.columns) * LEGEND.row;
    parts.push(rect(left, top, 14, 14, ink(key)));
    parts.push(text(left + 22, top + 12.5, `${label}: ${gibNumber(bytes, 2)} GiB`, ink('text'), 14));
  });
  if (drawn) {
    const areas = drawn.areas.map(({ key, path }) => `<path d="${path}" fill="${ink(key)}"/>`);
    const outline = `<path d="${drawn.reserved}" fill="none" stroke="${ink('line-strong')}"/>`;
    parts.push(`<g transform="translate(${MARGIN} ${plot})">${areas.join('')}${outline}</g>`);
    const peak = MARGIN + (WIDTH * drawn.peak) / 100;
    parts.push(rect(peak - 1, plot, 2, HEIGHT, ink('text')));
    parts.push(text(peak, plot + HEIGHT + 18, 'peak', ink('text'), 13, 600, 'middle'));
  }
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${PICTURE_WIDTH}" height="${height}" ` +
    `viewBox="0 0 ${PICTURE_WIDTH} ${height}" font-family="system-ui, sans-serif">${parts.join('')}</svg>`;
  return { svg, width: PICTURE_WIDTH, height };
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
