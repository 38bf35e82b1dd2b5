// What to say of a model that the core does not know, and the ways on.
import type { JobError } from '../wasm/report';
import type { OwnModel } from './model';

export interface Unsupported {
  /** "Gemma 3 isn’t supported yet." */
  sentence: string;
  /** The command that writes its graph. */
  command: string;
  /** The same sizes in Llama's code, where the model is of that kind. */
  alike: OwnModel | null;
  /** The classes that are supported. */
  known: string[];
}

type Json = Readonly<Record<string, unknown>>;

/** What a class is called without what it is for. */
const PURPOSE = /(For[A-Z]\w*|LMHeadModel|Model)$/;
/** By the end of a class's name, what `--task` of tools/export_graph.py calls it. */
const TASKS: readonly (readonly [ending: RegExp, task: string])[] = [
  [/ForMaskedLM$/, 'masked-lm'],
  [/ForTokenClassification$/, 'token-classification'],
  [/ForSequenceClassification$/, 'sequence-classification'],
  [/ForQuestionAnswering$/, 'question-answering'],
  [/ForImageClassification$/, 'image-classification'],
];

/** "Gemma3ForConditionalGeneration" → "Gemma 3" */
function nameOf(config: Json): string {
  const [first] = Array.isArray(config.architectures) ? (config.architectures as unknown[]) : [];
  const type = typeof config.model_type === 'string' ? config.model_type : '';
  const bare = typeof first === 'string' ? first.replace(PURPOSE, '') : '';
  const name = bare || type.charAt(0).toUpperCase() + type.slice(1);
  return name
    .replaceAll(/([A-Za-z])(\d)/g, '$1 $2')
    .replaceAll(/(\d)([A-Z])/g, '$1 $2')
    .replaceAll('_', ' ');
}

function taskOf(config: Json): string {
  const [first] = Array.isArray(config.architectures) ? (config.architectures as unknown[]) : [];
  const found = TASKS.find(([ending]) => typeof first === 'string' && ending.test(first));
  if (found) return found[1];
  if ('vision_config' in config) return 'image-text-to-text';
  return config.is_encoder_decoder === true ? 'seq2seq-lm' : 'causal-lm';
}

const SIZES = [
  'vocab_size',
  'hidden_size',
  'intermediate_size',
  'num_hidden_layers',
  'num_attention_heads',
  'num_key_value_heads',
  'head_dim',
  'max_position_embeddings',
  'tie_word_embeddings',
  'attention_bias',
];

/** A decoder of RMSNorm, attention and a gated SiLU MLP in every layer is Llama's kind; one with experts or other layers is not. */
function alikeOf(config: Json, name: string): OwnModel | null {
  const isKin =
    typeof config.rms_norm_eps === 'number' &&
    ['silu', 'swish', undefined].includes(config.hidden_act as string | undefined) &&
    SIZES.slice(0, 5).every((key) => typeof config[key] === 'number') &&
    !Object.keys(config).some((key) => /expert|vision|audio|mamba|ssm|linear_/.test(key));
  if (!isKin) return null;
  const sizes = Object.fromEntries(SIZES.flatMap((key) => (config[key] === undefined ? [] : [[key, config[key]]])));
  return {
    name: `${name} as Llama`,
    config: { model_type: 'llama', architectures: ['LlamaForCausalLM'], ...sizes, rms_norm_eps: config.rms_norm_eps },
  };
}

/** Null where the model is not unknown, but wrong. */
export function unsupported(
  { code, message }: JobError,
  own: OwnModel,
  { tokens, infers }: { tokens: string; infers: boolean },
): Unsupported | null {
  if (code !== 'unsupported-model' || !('config' in own)) return null;
  const { config } = own;
  const type = config.model_type;
  if (typeof type !== 'string') return null;
  const name = nameOf(config);
  const task = taskOf(config);
  const length = task === 'image-classification' ? '' : ` --sequence-length ${/^\d+$/.test(tokens) ? tokens : '2048'}`;
  const file = `${type.toLowerCase().replaceAll(/[^\w]+/g, '-')}.json`;
  return {
    sentence: `${name} isn’t supported yet.`,
    command: `python export_graph.py --hf config.json --task ${task}${length}${infers ? ' --inference' : ''} -o ${file}`,
    alike: alikeOf(config, name),
    known: [...message.matchAll(/\w+ \((\w+)\)/g)].map(([, known = '']) => known),
  };
}
