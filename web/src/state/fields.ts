// The form: each setting of the core's table that it shows, with the value that the page begins with and where it stands.
//
// A setup holds what stands in each field, as text, so that a half-typed number survives; `toJob` (job.ts) makes a job of it.
// Keys and values are what permalinks hold: once published, they keep their meaning.
import type { Condition, Setting } from './setting';
import { SETTINGS, type Link } from './settings.generated';
import { has, mixesImages, takes, type Traits } from './traits';

/** `zerooffload` stands for what two files of DeepSpeed say. */
export type FieldKey = Link | 'zerooffload';
export type Setup = Record<FieldKey, string>;

/** Where a field stands: in sight, below the stage, in the list, among what few people set; `first` ones each in a place of their own. */
type Group = 'first' | 'stage' | 'more' | 'rare';

/** What the page alone knows of a setting, or says otherwise than the core's table. */
interface Own {
  label?: string;
  kind?: Setting['kind'];
  pointers?: readonly string[];
  choices?: readonly string[];
  when?: readonly Condition[];
  /** Whether a choice can mean anything for this model, where that is not what its traits say of the first pointer. */
  offers?: (model: Traits, value: string) => boolean;
  /** Whether it means anything with the other settings, beside what the core's table says. */
  applies?: (model: Traits, setup: Setup) => boolean;
  /** More than a page can send. */
  most?: number;
  /** `job.ts` makes what it is in a job: another value, a part of several settings. */
  made?: true;
  /** A job says it even where it is as at the start. */
  told?: true;
}

interface Row extends Own {
  group: Group;
  start: string;
}

const row = (group: Group, start: string, own: Own = {}): Row => ({ group, start, ...own });
const told = (group: Group, start: string): Row => row(group, start, { told: true });

/** Weights in bf16 under autocast to bf16, which the core's table has as an object. */
export const BF16_IN_AUTOCAST = 'bf16-autocast';

/** Of an evaluation: a job lists the samples of each. */
export const MOST_BATCHES = 10_000;

/** What the list of GPUs calls one that it does not have. */
export const OWN_GPU = 'own';

const TRAINS: Condition = ['/task', true, 'train'];
const isOneByOne = (_: Traits, { liger }: Setup): boolean => liger === 'some';
/** Images of several sizes, which say how many there are, too. */
const hasSizes = (model: Traits, { imagesizes }: Setup): boolean =>
  imagesizes !== '' && has(model, '/data/image_sizes');
const hasVideo = (model: Traits, { video }: Setup): boolean => video !== '' && has(model, '/data/video');
const areAlike = (model: Traits, setup: Setup): boolean => !hasSizes(model, setup) && !hasVideo(model, setup);
/** Its images are all of one size, in pixels. */
const byPixels = (model: Traits, setup: Setup): boolean => setup.grid === '' && areAlike(model, setup);
const hasLimits = (_: Traits, { grid }: Setup): boolean => grid === '';
/** The size of its images, where tiles do not say it. */
const hasSize = (model: Traits, setup: Setup): boolean => byPixels(model, setup) && !has(model, '/data/tiles');
const hasTurns = (_: Traits, { cache }: Setup): boolean => cache !== 'mtla';
const checkpoints = (_: Traits, { checkpointing }: Setup): boolean => checkpointing !== 'none';
/** A library's loop, which has defaults of its own. */
export const isByTrainer = ({ loop }: Pick<Setup, 'loop'>): boolean => loop !== START.loop;
/** TRL's trainers turn autocast to bf16 and activation checkpointing on. */
export const byTrl = (loop: string): boolean => loop.startsWith('trl.');
const hasLengths = (model: Traits): boolean => has(model, '/data/lengths');
const isUniform = (_: Traits, { lengths }: Setup): boolean => lengths === 'uniform';
const isListed = (_: Traits, { lengths }: Setup): boolean => lengths === 'list';
const hasAdapters = (_: Traits, { adapters }: Setup): boolean => adapters !== 'none';
const hasStrategy = (_: Traits, { runfile }: Setup): boolean => runfile === '';
export const isFsdpWhole = ({ parallel, fsdpshard }: Setup): boolean => parallel === 'fsdp1' && fsdpshard === 'none';
const shardsByFsdp = (_: Traits, setup: Setup): boolean => !isFsdpWhole(setup);
/** "3" of "zero3" */
export const zeroStage = (parallel: string): string | undefined => /^zero(\d)$/.exec(parallel)?.[1];

/** In the order of permalinks. What the page shows first is frozen with version 1 of these, which hold what differs from it. */
const ROWS: Readonly<Record<FieldKey, Row>> = {
  task: told('first', 'train'),
  model: row('first', 'llava-1.5-7b', { kind: 'catalogue', pointers: ['/model'], made: true }),
  // A pasted config.json, packed; where there is one, it stands for the model.
  config: row('first', '', { kind: 'config', pointers: [], made: true }),
  stage: row('first', 'finetune', {
    // Of a graph, which says nothing of its parts, it would be "full".
    offers: (model, value) =>
      takes(model, '/training/stage', value) && (value !== 'finetune' || model.text || model.images),
    told: true,
  }),
  gpu: row('first', 'h100-80gb', { kind: 'catalogue', pointers: ['/gpu'], made: true }),
  gpus: row('first', '8', { label: 'Count', told: true }),
  mbs: told('first', '8'),
  seq: told('first', '2048'),
  images: row('first', '1', {
    told: true,
    applies: (model, setup) => model.text && !hasSizes(model, setup) && (model.prompts_take_images || !infers(setup)),
  }),
  tiles: row('more', 'usual', { applies: areAlike }),
  newtokens: row('first', '256'),
  turns: row('first', '1'),
  turntokens: row('first', '128', { applies: hasTurns }),
  turnimages: row('first', '0', { applies: hasTurns }),
  cache: row('more', 'dynamic', { pointers: ['/inference/cache/implementation', '/inference/cache'] }),
  pool: row('more', '90', { choices: ['90', '95', '80', '70', '50'], made: true }),
  stride: row('more', '2'),
  cachebackend: row('more', 'quanto'),
  cachebits: row('more', '4'),
  cachegroup: row('more', '64'),
  cacheresidual: row('more', '128'),
  chunk: row('more', 'all', { applies: (model) => !mixesImages(model) }),
  logits: row('more', 'last'),
  height: row('first', '672', { label: 'Image height', kind: 'count', applies: hasSize, made: true }),
  width: row('first', '448', { label: 'Image width', kind: 'count', applies: hasSize, made: true }),
  frames: row('first', '1', { applies: byPixels }),
  lengths: row('more', 'full', { kind: 'choice', choices: ['full', 'uniform', 'list'], made: true }),
  shortest: row('more', '', { label: 'Shortest sample', kind: 'count', applies: isUniform, made: true }),
  longest: row('more', '', { label: 'Longest sample', kind: 'count', applies: isUniform, made: true }),
  // Lengths with how many samples have each, "512x3-1024x5" (state/lengths.ts).
  histogram: row('more', '', { label: 'List of lengths', applies: isListed, made: true }),
  padding: row('more', 'longest', {
    choices: ['longest', 'max', '8', '64', '512'],
    applies: hasLengths,
    made: true,
  }),
  packed: row('more', 'none', { applies: hasLengths }),
  steps: row('more', '', { applies: hasLengths }),
  loop: row('more', 'step', {
    // Trainers of preferences, which take no images yet; LLaVA's own runs with arguments that the form does not have.
    offers: (model, value) =>
      !value.startsWith('llava') && (!/DPO|KTO|Reward|ORPO|llamafactory/.test(value) || !model.images),
    made: true,
  }),
  smoothing: row('more', '0'),
  eval: row('more', 'no'),
  evalbatch: row('more', '8'),
  metrics: row('more', 'off'),
  evalaccumulate: row('more', 'off'),
  evalbatches: row('more', '16', {
    kind: 'count',
    applies: (_, { metrics, evalaccumulate }) => metrics === 'on' && evalaccumulate === 'off',
    most: MOST_BATCHES,
    made: true,
  }),
  checkpointing: row('more', 'non-reentrant', { made: true }),
  ckptevery: row('more', '1', {
    applies: (model, setup) => checkpoints(model, setup) && setup.ckptplan === '',
    made: true,
  }),
  // Blocks that the page's own panel chose, packed.
  ckptplan: row('more', '', {
    applies: (model, setup) => checkpoints(model, setup) && setup.ckptplan !== '',
    made: true,
  }),
  saved: row('more', 'gpu', {
    choices: ['gpu', 'checkpoints', 'pinned', 'pageable'],
    offers: (model, value) => value !== 'checkpoints' || has(model, '/training/activation_checkpointing'),
    made: true,
  }),
  liger: row('more', 'off', { kind: 'choice', choices: ['off', 'on', 'loss', 'some'], made: true }),
  ligernorm: row('more', 'on', { applies: isOneByOne, made: true }),
  ligerrope: row('more', 'on', { applies: isOneByOne, made: true }),
  ligermlp: row('more', 'on', { applies: isOneByOne, made: true }),
  ligerloss: row('more', 'fused', { choices: ['fused', 'plain', 'off'], applies: isOneByOne, made: true }),
  losschunks: row('more', 'off'),
  adapters: row('more', 'none', {
    label: 'Adapters',
    kind: 'choice',
    choices: ['none', 'lora', 'dora', 'ia3'],
    pointers: ['/training/lora', '/training/ia3'],
    made: true,
  }),
  rank: row('more', '128', { made: true }),
  targets: row('more', 'linear', { kind: 'choice', choices: ['qv', 'attention', 'linear'], made: true }),
  dropout: told('more', '0.05'),
  lorabias: row('more', 'none'),
  adapterdtype: row('more', 'fp32', { when: [TRAINS], applies: hasAdapters, made: true }),
  quantization: row('more', 'none', {
    kind: 'choice',
    choices: ['none', 'nf4', 'nf4-double', 'fp4'],
    applies: (_, setup) => infers(setup) || setup.adapters === 'lora', // not DoRA
    made: true,
  }),
  parallel: row('more', 'zero2', {
    choices: ['none', 'ddp', 'zero1', 'zero2', 'zero3', 'fsdp1', 'fsdp2'],
    pointers: ['/parallel'],
    offers: (model, value) => {
      const stage = zeroStage(value);
      if (stage === undefined) return takes(model, '/parallel/strategy', value);
      return takes(model, '/parallel/strategy', 'deepspeed') && takes(model, '/parallel/zero_stage', stage);
    },
    applies: hasStrategy,
    made: true,
  }),
  // A pasted ds_config.json or accelerate configuration, packed; where there is one, it says what is run.
  runfile: row('more', '', { kind: 'config', pointers: ['/parallel/accelerate_config'], made: true }),
  ddpviews: row('more', 'copied', {
    label: 'DDP gradients',
    choices: ['copied', 'views', 'lazy', 'lazy-views'],
    made: true,
  }),
  ddpgraph: row('more', 'all', {
    label: 'DDP graph',
    choices: ['all', 'unused', 'static'],
    pointers: ['/parallel/ddp'],
    made: true,
  }),
  ddpcap: row('more', '25'),
  fsdpshard: row('more', 'full', { choices: ['full', 'none'], made: true }),
  fsdpmp: told('more', 'off'),
  fsdpreshard: row('more', 'on', {
    label: 'FSDP after forward',
    pointers: ['/parallel/fsdp'],
    when: [TRAINS, ['/parallel/strategy', true, 'fsdp1', 'fsdp2']],
    applies: shardsByFsdp,
    made: true,
  }),
  fsdpparams: told('more', 'original'),
  fsdpprefetch: row('more', 'pre', { choices: ['pre', 'post', 'none', 'both'], made: true }),
  fsdpoffload: row('more', 'off', { applies: shardsByFsdp, told: true }),
  zerooffload: row('more', 'off', {
    label: 'ZeRO offload',
    kind: 'choice',
    choices: ['off', 'optimizer', 'both'],
    pointers: ['/parallel/ds_config'],
    when: [TRAINS],
    applies: (model, setup) => hasStrategy(model, setup) && zeroStage(setup.parallel) !== undefined,
    made: true,
  }),
  precision: row('more', 'bf16', {
    choices: ['fp32', 'bf16', 'fp16', 'amp-bf16', 'amp-fp16', BF16_IN_AUTOCAST],
    made: true,
  }),
  optimizer: row('more', 'adamw', {
    choices: ['adamw', 'adam', 'sgd', 'sgd-momentum'],
    pointers: ['/training/optimizer'],
    made: true,
  }),
  impl: row('more', 'fused', {
    choices: ['fused', 'foreach', 'for-loop', 'bnb-8bit', 'bnb-8bit-paged', 'bnb-32bit-paged'],
    made: true,
  }),
  attention: told('more', 'sdpa'),
  accumulate: told('more', '1'),
  outputs: row('more', 'dropped'),
  clip: row('more', 'off', { made: true }),
  framework: told('more', 'transformers'),
  segments: told('more', 'off'),
  torch: told('more', '2.15'),
  transformers: row('more', '5.23', { made: true }),
  deepspeed: row('more', '0.19.8', { made: true }),
  // What the comparing page found: thousandths of the simulated reserved bytes, and MiB outside of the allocator.
  measured: row('first', '', { label: 'Measured', kind: 'config', pointers: ['/calibration'], made: true }),
  gpugib: row('first', '24', { applies: (_, { gpu }) => gpu === OWN_GPU, made: true }),
  capability: row('first', '8.9', { made: true }),
  freeze: row('stage', ''),
  trainonly: row('stage', ''),
  nograd: row('stage', ''),
  padside: row('rare', 'right', { applies: hasLengths }),
  scored: row('rare', 'all', { choices: ['all', 'completion', '0.25', '0.1'], made: true }),
  usecache: row('rare', 'off'),
  emptycache: row('rare', 'off'),
  grid: row('rare', '', { applies: areAlike }),
  minpixels: row('rare', '', { applies: hasLimits }),
  maxpixels: row('rare', '', { applies: hasLimits }),
  cacheroom: row('rare', ''),
  block: row('rare', '16'),
  batched: row('rare', ''),
  prefix: row('rare', '0'),
  loss: row('rare', 'usual', {
    choices: ['usual', 'mean', 'last_hidden_state'],
    offers: (model, value) => value === 'usual' || takes(model, '/training/loss', value),
  }),
  groups: row('rare', '2'),
  loratrain: row('rare', ''),
  lorascale: row('rare', 'off'),
  lorab: row('rare', 'off'),
  ligersum: row('rare', 'weight', { applies: isOneByOne }),
  ddpbuffers: row('rare', 'on'),
  ddpcopy: row('rare', 'off'),
  ddpskip: row('rare', 'off'),
  fsdpparam: row('rare', 'own'),
  fsdpreduce: row('rare', 'own'),
  fsdpbuffer: row('rare', 'own'),
  fsdpwrap: row('rare', ''),
  fsdplimit: row('rare', 'on'),
  fsdpsync: row('rare', 'off'),
  peft: row('rare', '0.21.2', { applies: hasAdapters }),
  cudnn: row('rare', 'on'),
  hostmem: row('rare', '', { kind: 'config', made: true }),
  pergpus: row('rare', '8'),
  workers: row('rare', '0'),
  targetlength: row('more', ''),
  audio: row('more', ''),
  audios: row('more', ''),
  kernels: row('more', 'torch', { offers: (_, value) => value !== 'hub' }),
  watts: row('rare', ''),
  price: row('rare', ''),
  tokens: row('rare', ''),
  // "672x448, 224x224" and "8 s, 2 fps, 360x640" (state/media.ts).
  imagesizes: row('rare', '', { kind: 'names', applies: (model, setup) => !hasVideo(model, setup), made: true }),
  video: row('rare', '', { kind: 'names', applies: (model, setup) => !hasSizes(model, setup), made: true }),
  objects: row('more', ''),
  ema: row('rare', 'none'),
};

export interface Field extends Omit<Setting, 'choices'>, Omit<Own, keyof Setting> {
  key: FieldKey;
  group: Group;
  start: string;
  choices?: readonly string[];
}

/** Of what the core's table has no row for. */
const NONE: Setting = { pointers: [], label: '', kind: 'config', type: 'object', when: [] };

/** What permalinks call "none of these" is what the field begins with. */
function fieldOf(key: FieldKey): Field {
  const own = ROWS[key];
  const { choices, ...setting } = key === 'zerooffload' ? NONE : SETTINGS[key];
  return { ...setting, ...(choices ? { choices: choices.map((value) => value ?? own.start) } : {}), ...own, key };
}

export const FIELDS: readonly Field[] = (Object.keys(ROWS) as FieldKey[]).map(fieldOf);
export const inGroup = (...groups: Group[]): readonly Field[] => FIELDS.filter(({ group }) => groups.includes(group));
/** What few people set. */
export const RARE = inGroup('stage', 'rare');

export const START = Object.fromEntries(FIELDS.map(({ key, start }) => [key, start])) as Readonly<Setup>;

export const infers = (setup: Setup): boolean => setup.task === 'inference';

/** The values of settings that no field holds as they are in a job; null where a job has none. */
const VALUES: Readonly<Record<string, (setup: Setup) => string | null>> = {
  '/parallel/strategy': ({ parallel, runfile }) =>
    runfile !== '' ? null : zeroStage(parallel) === undefined ? parallel : 'deepspeed',
  '/training/lora': ({ adapters }) => (['lora', 'dora'].includes(adapters) ? adapters : null),
  '/training/lora/use_dora': ({ adapters }) => (adapters === 'dora' ? 'on' : 'off'),
  '/training/liger/fused_linear_cross_entropy': ({ ligerloss }) => (ligerloss === 'fused' ? 'on' : 'off'),
  '/data/lengths': ({ lengths }) => (lengths === START.lengths ? null : lengths),
  '/gpu/usable_bytes': ({ gpu, gpugib }) => (gpu === OWN_GPU ? gpugib : null),
  '/host/memory': ({ hostmem }) => (hostmem === '' ? null : hostmem),
};
const HELD = new Map(FIELDS.flatMap(({ key, pointers }) => pointers.map((pointer) => [pointer, key])));

function valueAt(setup: Setup, pointer: string): string | null {
  const key = HELD.get(pointer);
  return VALUES[pointer]?.(setup) ?? (key && !(pointer in VALUES) ? setup[key] : null);
}

/** Whether a setting has a meaning here. */
export function applies({ pointers, when, applies: asks }: Field, model: Traits, setup: Setup): boolean {
  if (pointers.length > 0 && !pointers.some((pointer) => has(model, pointer))) return false;
  if (when.some(([pointer, is, ...values]) => values.includes(valueAt(setup, pointer)) !== is)) return false;
  return asks?.(model, setup) !== false;
}

/** The choices of a setting that can mean something for this model. */
export function choicesOf(
  { choices = [], offers, pointers: [own = ''] }: Field,
  model: Traits | null,
): readonly string[] {
  if (!model) return choices;
  return choices.filter((value) => (offers ? offers(model, value) : takes(model, own, value)));
}

/** What a setting is called where the model infers, if it is called otherwise. */
const OTHERWISE: Partial<Record<FieldKey, string>> = {
  mbs: 'Users at once',
  seq: 'Prompt tokens',
  images: 'Images per prompt',
  quantization: 'Weights in 4 bits',
};
export const labelOf = ({ key, label }: Field, setup: Setup): string =>
  (infers(setup) ? OTHERWISE[key] : undefined) ?? label;

const BY_KEY = new Map(FIELDS.map((field) => [field.key, field]));

export function field(key: FieldKey): Field {
  const found = BY_KEY.get(key);
  if (!found) throw new Error(`no such field: ${key}`);
  return found;
}

/** Of the fields in sight, the one that an error's JSON pointer belongs to: it names the longest part of it. */
export function fieldAt(pointer: string, inSight: (field: Field) => boolean = () => true): Field | null {
  let best: Field | null = null;
  let length = 0;
  for (const candidate of FIELDS) {
    if (!inSight(candidate)) continue;
    for (const own of candidate.pointers) {
      if ((pointer === own || pointer.startsWith(own + '/')) && own.length > length) {
        best = candidate;
        length = own.length;
      }
    }
  }
  return best;
}

/** "2,048" and " 8 " are numbers; what is none stays text, which the core refuses at the right pointer. */
export function number(text: string): number {
  const value = text.replaceAll(/[\s,_]/g, '');
  return value === '' ? Number.NaN : Number(value);
}

/** What cannot be sent to the core: a count that is empty or no number at all, or a list of nothing. */
export function unreadable(setup: Setup, model: Traits): { field: Field; message: string } | null {
  const list = field('histogram');
  if (setup.histogram === '' && applies(list, model, setup))
    return { field: list, message: 'Paste the lengths of your samples, or drop a file with them.' };
  for (const candidate of FIELDS) {
    const { key, kind } = candidate;
    const value = setup[key];
    if (kind !== 'count' || (value === '' && START[key] === '') || !applies(candidate, model, setup)) continue;
    if (!Number.isFinite(number(value)))
      return { field: candidate, message: `Type a whole number, such as ${START[key] || 4096}.` };
    if (number(value) > (candidate.most ?? Infinity))
      return { field: candidate, message: `Enter ${MOST_BATCHES.toLocaleString('en-US')} or less.` };
  }
  return null;
}
