// What people come with, one press each: settings as a link holds them. presets/jobs has the job of each.
import { START, type FieldKey, type Setup } from './fields';

export interface Start {
  /** Of the file in presets/jobs. */
  id: string;
  label: string;
  about: string;
  /** What differs from the page's start. */
  set: Partial<Record<FieldKey, string>>;
}

/** meta-llama/Llama-3.3-70B-Instruct of presets/hub.json, packed as a pasted config.json is. */
const LLAMA_70B =
  'eJxVjctOwzAQRf9l1k5xEpoGL0FCQipfgJA1jaeNVT8ie1IIVf8dJQ0LNrO4Z-65VwjoCRR4YiycQ48P-_kW9aYudvK5eAuZ09gxCOhiONoTqCtg6nrL1PGYKIP6gKXzGtMLjhnd_h0-BfhoyGmehtm_qEFAb42hoLP9IVBt-VQJsIEpeTIWmVZQtc2uEhBGr9eCw4lSBtXKe4zMFNjGoHtCk0E1j3dwpklf0I30B1oBHr_1ELNd_skfyBgbThlUWZdyHrrEDg_rdlm11bYRkHzWISavacig5EZKKUsBKQ6kuSdGUNs5kwLYkv6KyfxzH9Flut1-AWFdeC8';

export const STARTS: readonly Start[] = [
  {
    id: 'llava-1.5-7b-paper-zero3-dp8',
    label: 'LLaVA-1.5',
    about: 'Fine-tuning as in the paper: its own code, ZeRO-3, 8 × A100 80 GB',
    set: { gpu: 'a100-80gb', mbs: '16', parallel: 'zero3', framework: 'llava' },
  },
  {
    id: 'llava-1.5-7b-lora-zero3-dp8',
    label: 'LoRA + ZeRO-3',
    about: 'LLaVA-1.5 with LoRA, as its finetune_lora.sh has it',
    set: {
      gpu: 'a100-80gb',
      mbs: '16',
      parallel: 'zero3',
      framework: 'llava',
      adapters: 'lora',
      adapterdtype: 'weights',
    },
  },
  {
    id: 'llama-3-8b-qlora-one-gpu',
    label: 'QLoRA, 24 GB',
    about: 'Llama 3 8B with 4-bit weights and LoRA, on one RTX 4090',
    set: {
      model: 'llama-3-8b',
      stage: 'full',
      gpu: 'rtx-4090',
      gpus: '1',
      mbs: '1',
      adapters: 'lora',
      rank: '64',
      quantization: 'nf4-double',
      parallel: 'none',
      impl: 'bnb-32bit-paged',
    },
  },
  {
    id: 'qwen3-8b-fsdp2-dp8',
    label: 'Full, 8 GPUs',
    about: 'All weights of Qwen3 8B, FSDP2 over 8 × H100',
    set: { model: 'qwen3-8b', stage: 'full', mbs: '2', seq: '4096', parallel: 'fsdp2' },
  },
  {
    id: 'qwen2.5-7b-32k-zero3-dp8',
    label: 'Long context',
    about: 'Qwen2.5 7B at 32,768 tokens: ZeRO-3, Liger, checkpoints on the host',
    set: {
      model: 'qwen2.5-7b',
      stage: 'full',
      mbs: '1',
      seq: '32768',
      saved: 'checkpoints',
      liger: 'on',
      parallel: 'zero3',
    },
  },
  {
    id: 'llama-3.3-70b-serving',
    label: 'Serve a 70B',
    about: 'Llama 3.3 70B for 8 users at once, on one B200',
    set: {
      task: 'inference',
      model: 'llama-3-8b',
      config: LLAMA_70B,
      stage: 'full',
      gpu: 'b200',
      gpus: '1',
      mbs: '8',
      seq: '4096',
      newtokens: '512',
    },
  },
];

export const setupOf = ({ set }: Start): Setup => ({ ...START, ...set });
