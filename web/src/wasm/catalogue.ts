// The models and GPUs that the core knows, and what the form needs to know of the models.
import presetTraits from 'virtual:preset-traits';
import type { Traits } from '../state/traits';

export interface Preset extends Traits {
  id: string;
  title: string;
  description: string;
  /** The length that people train it with, where it reads text. */
  sequence_length: number | null;
}

export interface Gpu {
  id: string;
  name: string;
  vendor: string;
  architecture: string;
  usable_bytes: number;
  /** measured, derived or nominal: how its memory is known. */
  basis: string;
  /** Whether its libraries' behaviour was checked. */
  calibrated: boolean;
}

export interface Catalogue {
  models: Preset[];
  gpus: Gpu[];
}

interface CoreCatalogue {
  models: { id: string; title: string; description: string }[];
  gpus: Gpu[];
}

export function readCatalogue(json: string): Catalogue {
  const { models, gpus } = JSON.parse(json) as CoreCatalogue;
  return {
    models: models.map((model) => ({
      ...model,
      ...(presetTraits[model.id] ?? { text: true, images: true, sequence_length: null }),
    })),
    gpus,
  };
}
