// What a text looks like before it is read: keys with values, a command that starts a training, or JSON.

export const isBraced = (text: string): boolean => /^\s*\{/.test(text);
export const hasKeys = (text: string): boolean => /^[A-Za-z_][\w.-]*:(\s|$)/m.test(text);

/** Programs that start a training, with assignments ahead of them. */
const COMMAND =
  /^\s*(export\s+)?(\w+=\S*\s+)*(\S*python3?|accelerate|torchrun|deepspeed|llamafactory-cli|axolotl|automodel|trl|swift|uv|srun|bash|set)\s/m;
export const isScript = (text: string): boolean => text.startsWith('#!') || COMMAND.test(text);

/** Whether a text that is pasted outside all fields is meant for the page. */
export const isGiven = (text: string): boolean => isBraced(text) || hasKeys(text) || isScript(text);

/** A name for what is pasted. */
export const pastedName = (text: string): string => (isBraced(text) ? 'config.json' : 'pasted text');
