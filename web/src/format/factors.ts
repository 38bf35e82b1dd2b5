// What memory is held for. The order is the order in every bar; the colour is the same everywhere (styles/tokens.css).

export const FACTORS = [
  { key: 'parameters', label: 'Parameters', about: 'The weights, in the precision in which the model runs.' },
  { key: 'gradients', label: 'Gradients', about: 'Gradients, with the buckets and partitions that collect them.' },
  {
    key: 'optimizer_states',
    label: 'Optimizer states',
    about: 'fp32 master weights, moments and step counters.',
  },
  {
    key: 'activations',
    label: 'Activations',
    about: 'What the forward pass keeps for the backward pass, recomputed tensors included.',
  },
  {
    key: 'temporaries',
    label: 'Temporaries',
    about: 'What operators, their workspaces and the optimizer hold for a moment.',
  },
  { key: 'buffers_and_inputs', label: 'Buffers & inputs', about: 'The batch, and tensors that are not trained.' },
  {
    key: 'kv_cache',
    label: 'KV cache',
    about: 'Keys and values of the tokens seen, and the copies by which it grows.',
  },
  {
    key: 'allocator_rounding',
    label: 'Allocator rounding',
    about: 'What the caching allocator adds by rounding sizes up.',
  },
] as const;

export type FactorKey = (typeof FACTORS)[number]['key'];

/** Bytes by factor. */
export type Factors = Record<FactorKey, number>;

/** The two parts of the total that PyTorch's tensors do not hold. */
export const BEYOND = {
  cached: { label: 'Cached, unused', about: 'Reserved by PyTorch’s allocator, held by no tensor at the peak.' },
  outside: { label: 'Outside PyTorch', about: 'The CUDA context and libraries such as NCCL.' },
} as const;

export function sum(factors: Factors): number {
  return FACTORS.reduce((total, factor) => total + factors[factor.key], 0);
}
