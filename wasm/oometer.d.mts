/** The core: `JSON.parse(oometer.estimate(job))`. parts.mjs puts it together. */
export interface Oometer {
  /**
   * A job (JSON, version 1) in; its report, or `{"error": {"code", "pointer", "message", "fixes"?: [{"label", "change"}]}}`, out: a
   * fix is a JSON merge patch on the job with which it is accepted.
   */
  estimate(job: string): string;
  /** `{"models": [{id, title, description}], "gpus": [{id, name, vendor, architecture, compute_capability, sm_count, usable_bytes, basis, calibrated}]}` */
  presets(): string;
  /** The GPUs alone: first answers take them, and not the models of later ones. */
  gpus(): string;
  /** What the form needs to know of a job's model: `Traits` as JSON, or the error. Nothing is simulated. */
  traits(job: string): string;
  /** `{"spread": ...}` of a job whose samples are drawn of a distribution, which takes tens of runs; `{}` of another; or the error. */
  orderSpread(job: string): string;
  /** "0.1.0+abc1234": the project's version and the commit it was built from. */
  version(): string;
  /** The head of a job's report alone, for sweeps: `{verdict, fits, headroom, peak, interval: {of, low, high}, gpu}`, without `peak.least`, or the error. */
  summary(job: string): string;
  /** The whole report with every module, where `estimate` stops at the layers; or the error. */
  tree(job: string): string;
  /** What a module, by its path, and those below it hold at the peak: `[{bytes, shape, dtype, module, role, flat?}]`, or the error. */
  tensors(job: string, module: string): string;
  /** The timeline at up to 2,000 points, each the highest of its share of the events; the error as JSON text. */
  series(job: string): Series | string;
  /** The job's memory snapshot, a pickle that https://pytorch.org/memory_viz opens; the error as JSON text. */
  snapshot(job: string): Uint8Array<ArrayBuffer> | string;
  /** Bytes that the module has taken from its host so far; memory is never given back, so this is the peak. */
  heapBytes(): number;
  /**
   * What would help: `{largest_micro_batch, longest_sequence, fewest_gpus, changes: [{label, price, costs, change, peak, verdict,
   * saves}], combinations: [{price, parts: [{label, price, costs}], labels, change, peak, verdict}], combination: the first of
   * these or null, beside: [{label, gains, change, peak, verdict}], frontier: [{context, users}]}`, or the error. `price` is what
   * one pays with: "nothing", "time", "numerics", "training" or "hardware". `combinations` are of a job that does not fit, `beside`
   * of one that does: what fits there too. `change` is a JSON merge patch on the job; a number is null where there is none.
   * Executes some hundred jobs.
   */
  advise(job: string): string;
  /**
   * The job on its own GPU as a row of a table: `{id, name, vendor, usable_bytes, calibrated, verdict | null, peak | null,
   * headroom | null, refused, largest_micro_batch | null, needed: {gpus, label, change} | null}`, or the error. `refused` says why
   * where `verdict` is null. `needed` is the fewest that are enough; its change takes them, and its label says how the job is then
   * spread, where that is not as now.
   */
  onGpu(job: string): string;
  /**
   * How long a step, or a turn of inference, takes: `{time: {step, low, high, basis, tokens_per_second, mfu, hfu, by_kind, ...} | null,
   * notes}`, or the error. A note says why there is no time.
   */
  time(job: string): string;
  /** What the job's processes need of a machine's memory, as a report's `host` (docs/host.md): `{host}`, or the error. */
  host(job: string): string;
  /**
   * What became of a pasted DeepSpeed or accelerate configuration: `{resolved: [{pointer, value, origin, from, matters}]}`, or the
   * error. `origin` is "file", "auto" (resolved by what `from` says) or "default"; `matters` is true, false or "not modelled".
   */
  resolve(job: string): string;
  /**
   * Which blocks to checkpoint: `[{stack, blocks, least: PLAN, frontier: [PLAN]}]`, a PLAN being `{peak, recomputed, segments, total, step, low, high,
   * tokens_per_second, change}` with the most bytes that the blocks keep, how many run twice, the whole job's bytes and a step's seconds then
   * (null where they are not known), and a JSON merge patch on the job; or the error.
   */
  checkpoints(job: string): string;
  /**
   * A trainer's own files, `{"files": [{name, content}], "hub", "gpu", "gpus"}`, as a job with an account of every key; `content` is the tree
   * of JSON or YAML, or a script's text: `{trainer, job, taken, ignored, unmodelled, missing, refused}`, or the error.
   */
  importFiles(question: string): string;
  /**
   * What helps such a training, as its files say it: `{"changes": [{label, costs, edits: [{file, key, value}], words, patches, peak, verdict,
   * saves}]}`; `patches` are unified diffs where the question has each file's `text`. Runs hundreds of jobs.
   */
  adviseFiles(question: string): string;
  /**
   * Two trainings in one such question: `{"comparison": {first, second, differences, together} or null, "imports": [two accounts]}`;
   * no accounts where the files are not two trainings.
   */
  compareFiles(question: string): string;
}

/**
 * What a model is and which settings mean something for it. A setting is named by its pointer in a job; one above another
 * stands for it, too.
 */
export interface Traits {
  /** "LlamaForCausalLM" */
  class: string;
  /** Whether it reads text. */
  text: boolean;
  /** Whether it takes images. */
  images: boolean;
  /** Whether it takes them in inference, too. */
  prompts_take_images: boolean;
  /** Whether it has parts that no sample reaches: DDP has to look for them (find_unused_parameters). */
  idle_parts: boolean;
  /** The length that its preset is used with. */
  sequence_length: number | null;
  /** The most tokens that it was made for; null where it does not say. */
  max_position_embeddings: number | null;
  /** The dotted names of tower and projector, by framework; none where no projector brings images among the text. */
  components: Readonly<Record<string, { tower: string; projector: string }>>;
  /** What QLoRA leaves as it is where the projector trains beside adapters. */
  skip_modules: readonly string[];
  /** peft's own target_modules, and (IA)^3's feedforward_modules. */
  lora_targets: readonly string[];
  ia3_targets: readonly string[];
  ia3_feedforward: readonly string[];
  /** Settings that mean nothing for it, or whose use with it is refused. */
  without: readonly string[];
  /** The choices of a setting, its own one first, where it has not all. */
  choices: Readonly<Record<string, readonly (string | number)[]>>;
}

/** `rows` holds `columns.length` numbers a row: the event, bytes, then places in `ops` and `modules`. */
export interface Series {
  columns: string[];
  ops: string[];
  modules: string[];
  rows: Float64Array;
}

export interface CreateOptions {
  /** Instantiates the module from its parts, as parts.mjs does. */
  instantiateWasm(imports: WebAssembly.Imports, received: (instance: WebAssembly.Instance) => void): object;
}

export default function create(options: CreateOptions): Promise<Oometer>;
