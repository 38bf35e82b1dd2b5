// The models and GPUs that the core knows, and the models' traits, which the core was asked when the page was built.
import presetTraits from 'virtual:preset-traits';
import { OWN_GPU } from '../state/fields';
import type { Model } from '../state/model';
import { UNKNOWN } from '../state/traits';

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
  models: Model[];
  gpus: Gpu[];
}

/** Whatever the core does not know by a name: its memory is a setting. */
const OWN: Gpu = {
  id: OWN_GPU,
  name: 'Another GPU, by its memory',
  vendor: '',
  architecture: 'own',
  usable_bytes: 0,
  basis: '',
  calibrated: false,
};

interface CoreCatalogue {
  models: { id: string; title: string; description: string }[];
  gpus: Gpu[];
}

export function readCatalogue(json: string): Catalogue {
  const { models, gpus } = JSON.parse(json) as CoreCatalogue;
  return {
    models: models.map((model) => ({
      ...model,
      job: { preset: model.id },
      ...(presetTraits[model.id] ?? UNKNOWN),
    })),
    gpus: [...gpus, OWN],
  };
}
