// What the form needs to know of a model to show the fields that mean something for it.

export interface Traits {
  /** Whether it reads text. */
  text: boolean;
  /** Whether images stand as tokens among its text, so that a sample may hold any number of them. */
  images: boolean;
}

/** Reads a Hugging Face config.json. */
export function traits(config: Readonly<Record<string, unknown>>): Traits {
  return {
    text: 'vocab_size' in config || 'text_config' in config,
    images: 'image_token_index' in config || 'image_token_id' in config,
  };
}
