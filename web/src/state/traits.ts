// What a model is and which settings mean something for it, as the core tells it: nothing here knows a model by its name.
import type { Traits } from 'oometer-core/oometer.mjs';

export type { Traits };

/** Of a model that cannot be read, or is not here: of its settings only how much runs at once is known. */
export const UNKNOWN: Traits = {
  class: '',
  text: false,
  images: false,
  prompts_take_images: false,
  idle_parts: false,
  sequence_length: null,
  max_position_embeddings: null,
  components: {},
  skip_modules: [],
  lora_targets: [],
  ia3_targets: [],
  ia3_feedforward: [],
  without: [
    '/data/sequence_length',
    '/data/target_length',
    '/data/lengths',
    '/data/packed',
    '/data/scored',
    '/data/evaluation',
    '/data/images_per_sample',
    '/data/tiles',
    '/data/image_size',
    '/data/objects_per_image',
    '/data/frames',
    '/data/grid_thw',
    '/data/min_pixels',
    '/data/max_pixels',
    '/data/audio_seconds',
    '/data/audios_per_sample',
    '/training',
    '/inference',
    '/parallel',
    '/runtime',
  ],
  choices: {},
};

/** Whether the setting at a pointer means something for the model. */
export const has = ({ without }: Traits, pointer: string): boolean =>
  !without.some((own) => pointer === own || pointer.startsWith(`${own}/`));

/** Whether that setting may have the value. */
export const takes = ({ choices }: Traits, pointer: string, value: string): boolean =>
  choices[pointer]?.some((choice) => String(choice) === value) !== false;

/** What the model does by itself, of a setting that it has not all choices of. */
export const ownChoice = ({ choices }: Traits, pointer: string): string | undefined =>
  choices[pointer]?.[0]?.toString();

/** Whether images stand as tokens among its text, so that a sample may hold any number of them. */
export const mixesImages = ({ components }: Traits): boolean => Object.keys(components).length > 0;

/** Whether it is a class of transformers, which settings that act on those reach. */
export const isOfTransformers = (model: Traits): boolean => has(model, '/runtime/transformers');
