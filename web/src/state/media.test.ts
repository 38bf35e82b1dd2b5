import { describe, expect, it } from 'vitest';
import { imageSizesOf, mediaIn, videoOf } from './media';

describe('images of several sizes', () => {
  it('are heights and widths', () => {
    expect(imageSizesOf('672x448, 224 × 224')).toEqual([
      [672, 448],
      [224, 224],
    ]);
  });

  it('that no one can read are left to the core, which refuses them', () => {
    expect(imageSizesOf('large')).toEqual([[]]);
  });
});

describe('a video', () => {
  it('is seconds, frames and a size, in any order', () => {
    expect(videoOf('8 s, 2 fps, 360x640')).toEqual({ seconds: 8, fps: 2, size: [360, 640] });
    expect(videoOf('360x640 at 1.5fps, 12.5s')).toEqual({ seconds: 12.5, fps: 1.5, size: [360, 640] });
    expect(videoOf('8 s')).toEqual({ seconds: 8 });
  });

  it('comes back from a job as it was typed', () => {
    const video = { seconds: 8, size: [360, 640] };
    expect(mediaIn({ image_sizes: [[672, 448]], video })).toEqual({
      imagesizes: '672x448',
      video: '8 s, 2 fps, 360x640',
    });
    expect(mediaIn({})).toEqual({});
  });
});
