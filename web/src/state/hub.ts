// The models that people use most, by their names on the Hugging Face hub.
import type { OwnModel } from './model';

/** One of presets/hub.json, without its source. */
export interface HubModel {
  /** "Qwen/Qwen3-8B" */
  id: string;
  /** The core's own name for it; else its config.json stands here. */
  preset?: string;
  config?: Readonly<Record<string, unknown>>;
  /** Whether the core reads it, which it was asked when the page was built. */
  known: boolean;
}

/** As a config.json that somebody pasted. */
export const ownOf = ({ id, config = {} }: HubModel): OwnModel => ({ name: id, config });

/** Where the file of a model lies, for a name as the hub writes them; null for any other text. */
export function addressOf(name: string): string | null {
  const id = /^(?:https:\/\/huggingface\.co\/)?([\w.-]+\/[\w.-]+?)\/?$/.exec(name.trim())?.[1];
  return id === undefined ? null : `https://huggingface.co/${id}/blob/main/config.json`;
}
