// A setting of the core's table, by its key in permalinks, as scripts/generate.js takes it out of presets/settings.json.

export interface Setting {
  /** Where it stands in a job; several are one setting here. */
  pointers: readonly string[];
  label: string;
  /** `names` and `numbers` are lists in a text, with commas or blanks between. */
  kind: 'catalogue' | 'config' | 'choice' | 'count' | 'names' | 'numbers';
  /** What it is in a job. */
  type: 'string' | 'boolean' | 'integer' | 'number' | 'array' | 'object';
  /** How permalinks spell true, where not "on". */
  yes?: string;
  /** As permalinks spell them; null: none of the others. */
  choices?: readonly (string | null)[];
  /** Another setting, by its pointer, has one of these values, or where false none of them. */
  when: readonly Condition[];
}

export type Condition = readonly [pointer: string, is: boolean, ...values: (string | null)[]];
