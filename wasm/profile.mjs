// What a first answer runs: asks the instrumented core for such answers and writes which functions they took, which
// wasm-split keeps in the first part. The rest is loaded for whatever needs another.
//   node profile.mjs SCRIPT INSTRUMENTED PROFILE
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const llava = { model: { preset: "llava-1.5-7b" } };
const llama = { model: { preset: "llama-3-8b" } };

const choices = {
  activation_checkpointing: ["none", "non-reentrant"],
  attention: ["eager", "sdpa"],
  precision: ["fp32", "bf16"],
};
const alone = { precision: ["amp-bf16"], max_grad_norm: [1] };
const stages = { stage: ["pretrain", "finetune", "full"] };

/** The model with its defaults, and with each choice in place of one. */
const each = (model, ...tables) => [
  model,
  ...tables.flatMap((table) =>
    Object.entries(table).flatMap(([key, values]) =>
      values.map((value) => ({ ...model, training: { ...model.training, [key]: value } })),
    ),
  ),
];

const zero2 = (model) =>
  [1, 8].map((data) => ({ ...model, parallel: { strategy: "deepspeed", zero_stage: 2, data } }));

const pasted = {
  model_type: "llava",
  vision_config: { model_type: "clip_vision_model", hidden_size: 1024, num_attention_heads: 16, image_size: 336 },
  text_config: { model_type: "llama", hidden_size: 4096, vocab_size: 32064, rms_norm_eps: 1e-5, num_hidden_layers: 2 },
  image_token_index: 32000,
  vision_feature_layer: -2,
  architectures: ["LlavaForConditionalGeneration"],
};

/** What the page begins with (web/src/state/fields.ts). */
const start = {
  ...llava,
  task: "train",
  data: { micro_batch_size: 8, sequence_length: 2048, images_per_sample: 1 },
  gpu: { name: "h100-80gb" },
  training: {
    stage: "finetune",
    precision: "bf16",
    optimizer: { name: "adamw", implementation: "fused" },
    activation_checkpointing: "non-reentrant",
    attention: "sdpa",
    gradient_accumulation_steps: 1,
  },
  parallel: { strategy: "deepspeed", zero_stage: 2, data: 8 },
  runtime: { framework: "transformers", torch: "2.15", transformers: "5.23", deepspeed: "0.19.8", expandable_segments: false },
};

const jobs = [
  start,
  ...each(llama, choices, alone),
  ...each(llava, choices, alone, stages),
  ...zero2(llama).flatMap((model) => each(model, choices)),
  ...zero2(llava).flatMap((model) => each(model, choices, stages)),
  // A config with changes or in place of a preset, many images, a limit of one's own, a library that is not there.
  { model: { ...llama.model, config: { num_key_value_heads: 4, tie_word_embeddings: true, rope_theta: 1e-5 } } },
  { model: { config: pasted } },
  { ...llava, gpu: { usable_bytes: 84825604096, compute_capability: "9.0" } },
  // Every kind of JSON's values, and a name with all kinds of characters.
  {
    task: "train",
    model: { ...llama.model, name: 'm\u00f6del "\u20ac\ud83d\ude00"\\\n', config: { rope_scaling: null, initializer_range: 2e-2, eos_token_id: [1, -2], quantization_config: null } },
    training: { max_grad_norm: null, loss: null, stage: "full", attention: "sdpa" },
    gpu: { name: "a100-80gb" },
  },
  { ...llava, runtime: { cudnn: false } },
];

const [script, instrumented, profile] = process.argv.slice(2);
const { default: create } = await import(pathToFileURL(resolve(script)));
const module = await WebAssembly.compile(readFileSync(instrumented));
let exported;
const core = await create({
  instantiateWasm(imports, received) {
    WebAssembly.instantiate(module, imports).then((instance) => {
      exported = instance.exports;
      received(instance);
    });
    return {};
  },
});
core.gpus();
core.version();
for (const job of jobs) {
  const { error } = JSON.parse(core.estimate(JSON.stringify({ version: 1, ...job })));
  if (error) throw new Error(`${JSON.stringify(job)}: ${error.pointer}: ${error.message}`);
}
core.estimate(JSON.stringify({ version: 1, ...llava, data: { micro_batch_size: 0 } }));  // how an error is said

const memory = Object.values(exported).find((value) => value instanceof WebAssembly.Memory);
const size = exported.__write_profile(0, 0);
const at = memory.buffer.byteLength;
memory.grow(Math.ceil(size / 65536));
exported.__write_profile(at, size);
writeFileSync(profile, new Uint8Array(memory.buffer, at, size));
