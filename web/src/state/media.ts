// Images of several sizes and videos, as people type them and links hold them.
import type { Job } from './job.generated';

type Data = NonNullable<Job['data']>;

const NUMBER = String.raw`\d+(?:\.\d+)?`;
const sizeIn = (text: string): number[] | null => /(\d+)\s*[x×]\s*(\d+)/i.exec(text)?.slice(1).map(Number) ?? null;

/** "672x448, 224x224", each height and width in pixels; of anything else what the core refuses. */
export const imageSizesOf = (text: string): number[][] => text.split(/[,;]/).map((one) => sizeIn(one) ?? []);

/** "8 s, 2 fps, 360x640": seconds, frames that are sampled of each, height and width of a frame. */
export function videoOf(text: string): object {
  const named = (unit: string): number | null => {
    const found = new RegExp(String.raw`(${NUMBER})\s*${unit}`, 'i').exec(text);
    return found ? Number(found[1]) : null;
  };
  const [seconds, fps, size] = [named('s(?![a-z])'), named('fps'), sizeIn(text)];
  return { ...(seconds === null ? {} : { seconds }), ...(fps === null ? {} : { fps }), ...(size ? { size } : {}) };
}

/** The same of a job, where it has them. */
export function mediaIn({ image_sizes, video }: Data): { imagesizes?: string; video?: string } {
  const side = (size: unknown): string => (Array.isArray(size) ? size.join('x') : '');
  const { seconds, fps = 2, size } = (video ?? {}) as { seconds?: number; fps?: number; size?: unknown };
  return {
    ...(Array.isArray(image_sizes) ? { imagesizes: image_sizes.map(side).join(', ') } : {}),
    ...(seconds === undefined ? {} : { video: [`${seconds} s`, `${fps} fps`, side(size)].filter(Boolean).join(', ') }),
  };
}
