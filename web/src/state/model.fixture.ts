import type { Model } from './model';

/** A model of text alone, as the catalogue gives it. */
export const llama: Model = {
  id: 'llama-2-7b',
  title: 'Llama 2 7B',
  description: '',
  sequence_length: 4096,
  job: { preset: 'llama-2-7b' },
  text: true,
  images: false,
};
