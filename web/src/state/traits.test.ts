import { expect, it } from 'vitest';
import { traits } from './traits';

it('tells language, vision and joint models apart', () => {
  expect(traits({ model_type: 'llama', vocab_size: 32000 })).toEqual({ text: true, images: false });
  expect(traits({ model_type: 'llava', text_config: {}, image_token_index: 32000 })).toEqual({
    text: true,
    images: true,
  });
  expect(traits({ model_type: 'clip_vision_model' })).toEqual({ text: false, images: false });
  expect(traits({ model_type: 'clip', text_config: {}, vision_config: {} })).toEqual({ text: true, images: false });
});
