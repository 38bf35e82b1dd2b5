// The models and GPUs as lists to pick from.
import { gib } from '../format/bytes';
import { effectKey, type Effects } from '../state/effects';
import type { FieldKey } from '../state/fields';
import type { HubModel } from '../state/hub';
import type { Model } from '../state/model';
import { mixesImages } from '../state/traits';
import type { Gpu } from '../wasm/catalogue';
import type { Item } from './picker';

/** Newest first: most people ask about what they can rent now. */
const ARCHITECTURES: Record<string, string> = {
  blackwell: 'Blackwell',
  hopper: 'Hopper',
  ada: 'Ada',
  ampere: 'Ampere',
  turing: 'Turing',
  volta: 'Volta',
  pascal: 'Pascal',
  own: 'Not in this list',
};
const OTHERS = 'AMD and others';

/** The peak with this choice, and whether it fits; empty until it is known. */
function note(effects: Effects, key: FieldKey, value: string): string {
  const effect = effects.get(effectKey(key, value));
  if (effect === undefined) return '';
  if (effect === null) return 'not with these settings';
  return `${{ fits: '✓', tight: '~', 'does-not-fit': '✕' }[effect.verdict]} ${gib(effect.total)}`;
}

/** What the core knows by a name of its own, and below it the hub's models by organisation. */
export function modelItems(models: readonly Model[], hub: readonly HubModel[], effects: Effects): Item[] {
  const nameOf = (preset: string): string => hub.find((one) => one.preset === preset)?.id ?? '';
  const presets = [...models]
    .sort((a, b) => Number(mixesImages(b)) - Number(mixesImages(a)) || Number(b.text) - Number(a.text))
    .map((model) => ({
      value: model.id,
      label: model.title,
      group: mixesImages(model) ? 'Vision and language' : model.images ? 'Vision' : 'Language',
      keywords: `${model.id} ${nameOf(model.id)} ${model.description}`,
      note: note(effects, 'model', model.id),
    }));
  const others = hub.flatMap(({ id, config, known }): Item[] => {
    if (!config) return [];
    const [group = '', label = ''] = id.split('/');
    return [{ value: id, label, group, keywords: id, note: known ? '' : 'not supported yet' }];
  });
  return [...presets, ...others];
}

export function gpuItems(gpus: readonly Gpu[], effects: Effects): Item[] {
  const order = [...Object.keys(ARCHITECTURES), ''];
  const rank = ({ architecture }: Gpu): number =>
    architecture in ARCHITECTURES ? order.indexOf(architecture) : order.length;
  return [...gpus]
    .sort((a, b) => rank(a) - rank(b))
    .map((gpu) => ({
      value: gpu.id,
      label: gpu.name,
      group: ARCHITECTURES[gpu.architecture] ?? OTHERS,
      keywords: `${gpu.id} ${gpu.vendor} ${Math.round(gpu.usable_bytes / 1024 ** 3)} GB`,
      note: note(effects, 'gpu', gpu.id),
    }));
}
