#include "models/kit/decoder.h"

#include <algorithm>
#include <utility>

#include "models/kit/classifier.h"
#include "models/masking.h"
#include "nn/hidden_states.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"

namespace oometer {

Decoder::Decoder(const Builder& builder, const LlamaConfig& config, const ModelOptions& options, DecoderParts own)
    : parts(std::move(own)),
      checkpointing(options.checkpointing),
      masked(masked_by(options.attention)),
      sliding_window(config.sliding_window),
      makes_full_mask(config.sliding_window == 0 || (!config.layer_windows.empty() && !parts.layers_choose_angles)),
      is_llama(config.names == &kLlamaClassNames),
      module(builder.module) {
  const Builder embedding = builder.child(parts.embed_tokens, "Embedding");
  embed_tokens = Embedding(embedding, config.vocab_size, config.hidden_size);
  if (parts.scales_embeddings) embed_scale = embedding.buffer({}, builder.dtype);
  layers.reserve(static_cast<std::size_t>(config.num_hidden_layers));
  blocks = BlockStack(builder);
  for (std::int32_t i = 0; i < config.num_hidden_layers; ++i) {
    const Builder layer = builder.child(parts.layers, config.names->decoder_layer, i);
    if (parts.layer)
      layers.push_back(parts.layer(layer, layers.size()));
    else
      layers.push_back(std::make_unique<LlamaDecoderLayer>(layer, config, options));
    blocks.add_block(builder);
    windows.push_back(config.window_of(static_cast<std::size_t>(i)));
  }
  const Builder last = builder.child(parts.last_norm, config.names->rms_norm);
  if (parts.norm)
    norm = parts.norm(last, config.hidden_size);
  else
    norm = [its = LlamaRMSNorm(last, config.hidden_size, options.liger.rms_norm)](const Tensor& x) { return its(x); };
  const Rotary rotary = builder.context->behaviours.rotary;
  if (rotary == Rotary::cached_per_layer || rotary == Rotary::matmul_per_layer || parts.rotary_dim < 0) return;
  LlamaConfig rotated = config;
  if (parts.rotary_dim != 0) rotated.head_dim = parts.rotary_dim;
  if (parts.float32_frequencies) rotated.float32_frequencies = true;
  const Builder tables = builder.child("rotary_emb", config.names->rotary_embedding);
  rotary_emb = LlamaRotaryEmbedding(tables, rotated);
  if (parts.rotary_by_type) sliding_rotary_emb = LlamaRotaryEmbedding(tables, config);
  if (parts.rest) parts.rest(builder);
  if (parts.per_layer) per_layer = parts.per_layer(builder);
  if (parts.streams) streams = parts.streams(builder);
}

namespace {

// neftune_post_forward_hook (transformers 5.23, integrations/neftune.py)
Tensor add_noise(const Tensor& output) {
  const Tensor noise = empty_like(Op::zeros_like, output);
  return add(output, noise);
}

}  // namespace

Tensor Decoder::embed(const Tensor& input_ids) const {
  Context& context = input_ids.context();
  if (embed_scale && embed_tokens.wrapper)
    context.refusal = Error{"not-modelled", "/training",
                            "found an adapter on embeddings that are scaled, which is not supported yet: leave it out"};
  Tensor inputs_embeds = embed_tokens(input_ids, [&](Tensor& embeddings) {
    if (embed_scale) {
      const ModuleScope scope(context, embed_tokens.module);
      const Tensor scale = to(embed_scale, embed_tokens.weight.dtype());
      embeddings = mul(embeddings, scale);
    }
    require_input_grad(checkpointing, embeddings, embed_tokens.module);
  });
  if (adds_noise && context.training) inputs_embeds = add_noise(inputs_embeds);
  return parts.scale && !parts.scales_behind_masks ? parts.scale(inputs_embeds) : inputs_embeds;
}

Tensor Decoder::positions(Context& context, std::int64_t length) const {
  Tensor position_ids = empty(context, Op::arange, {length}, DType::int64);
  if (parts.offsets_positions && context.behaviours.positions_are_offset)
    position_ids = add_scalar(position_ids);  // arange(...) + past_seen_tokens
  return unsqueeze(position_ids, 0);
}

namespace {

// Qwen3VLTextModel._deepstack_process
Tensor deepstack_process(const Tensor& hidden_in, const Tensor& visual_pos_masks, const Tensor& features) {
  const Tensor visual_embeds = to(features, hidden_in.dtype());
  Tensor hidden_states = clone(hidden_in), local_this;
  {
    const Tensor visual = index_mask(hidden_states, visual_pos_masks, visual_embeds.size(0));
    local_this = add(visual, visual_embeds);
  }
  return index_put_mask_(std::move(hidden_states), visual_pos_masks, local_this);
}

/// The angles of all layers as layer `i` is called with them: FSDP2 casts keywords, too, before the layer's hooks, but
/// no complex numbers (without sines).
PositionEmbeddings cast_for_layer(PositionEmbeddings positions, const Context& context, ModuleId decoder,
                                  std::size_t i) {
  if (!context.modules || !positions.sin) return positions;
  const auto& modules = context.log.modules;
  ModuleId layer = decoder + 1;
  while (modules[layer].parent != decoder || modules[layer].index != static_cast<std::int32_t>(i)) ++layer;
  for (Tensor* angles : {&positions.cos, &positions.sin}) *angles = cast_forward_input(*angles, layer);
  return positions;
}

}  // namespace

Tensor Decoder::run(Tensor& inputs_embeds, const MaskArguments& given, const Deepstack* deepstack,
                    Tensor per_layer_inputs, std::int64_t logits_to_keep) const {
  Context& context = inputs_embeds.context();
  const ModuleScope scope(context, module);
  if (per_layer_inputs) per_layer_inputs = per_layer->project(inputs_embeds, per_layer_inputs);
  const CausalMask masking = context.behaviours.causal_mask;
  // rotary_dim -1: there is no rotary_emb; -2: nor do layers get position_ids.
  const bool has_positions = parts.makes_masks || parts.rotary_dim >= 0;
  Tensor position_ids =
      given.position_ids || !has_positions ? given.position_ids : positions(context, inputs_embeds.size(1));
  if (parts.positions_by_sample && position_ids.ndim() == 2)
    position_ids = expand(position_ids, {inputs_embeds.size(0), position_ids.size(1)});
  Tensor cache_position;  // otherwise position_ids is a view of it
  if (given.position_ids && masking == CausalMask::cache_position)
    cache_position = positions(context, inputs_embeds.size(1));
  if (given.attention_mask && masked != MaskedBy::eager && masking <= CausalMask::cache_position) {
    // Nothing is masked: `torch.all(attention_mask == 1)` (modeling_attn_mask_utils.py, _ignore_causal_mask_sdpa).
    const Tensor attended = empty(context, Op::eq, {inputs_embeds.size(0), inputs_embeds.size(1)}, DType::boolean);
    const Tensor all = empty(context, Op::all, {}, DType::boolean);
  }
  // Where positions are of frame, row and column, the mask is not made from them, but from the text's own in front of
  // them, if they are there (Qwen2VLTextModel.forward, Qwen3VLTextModel.forward).
  Tensor text_position_ids = position_ids;
  if (position_ids && position_ids.ndim() == 3) {
    const bool has_own = position_ids.size(0) == 4;
    text_position_ids = has_own ? select(position_ids, 0, 0) : Tensor();
    if (has_own) position_ids = slice(position_ids, 0, 1, 3);
  }
  const MaskArguments mask_arguments{.position_ids = parts.masks_know_positions ? text_position_ids : Tensor(),
                                     .attention_mask = given.attention_mask,
                                     .rows = given.rows,
                                     .is_chunked = parts.masks_chunks,
                                     .is_always_made = parts.always_masks,
                                     .is_triangular = is_llama};
  const auto mask = [&](std::int64_t window) {
    return create_causal_mask(inputs_embeds, mask_arguments, masked, window);
  };
  CausalMasks causal_masks;
  if (given.masks) causal_masks = *given.masks;
  const bool makes_masks = parts.makes_masks && !given.masks;
  const bool full_comes_last = parts.masks_by_type && sliding_window != 0;
  if (makes_masks && makes_full_mask && !full_comes_last) causal_masks.full_attention = mask(0);
  const bool given_by_generate = context.past_key_values && context.past_key_values->is_compileable();
  if (makes_masks && (sliding_window != 0 || (parts.makes_both_masks && !given_by_generate)))
    causal_masks.sliding_attention = mask(sliding_window != 0 ? sliding_window : -1);
  if (makes_masks && makes_full_mask && full_comes_last) causal_masks.full_attention = mask(0);
  Tensor padding_mask;
  if (parts.is_recurrent) padding_mask = create_recurrent_attention_mask(inputs_embeds, mask_arguments);
  if (parts.scales_behind_masks) inputs_embeds = parts.scale(inputs_embeds);
  Tensor hidden_states = dropout(inputs_embeds, parts.dropout);  // `inputs_embeds` stays bound until forward returns
  TensorList names;
  if (parts.first_states) hidden_states = parts.first_states(inputs_embeds);
  // Qwen4ExpTextModel.forward makes its states once it has the angles, and does not hand position_ids on.
  const bool opens_last = streams && parts.positions_by_sample;
  if (streams && !opens_last) hidden_states = streams->open(inputs_embeds, names);
  PositionEmbeddings positions, sliding_positions;
  const auto embed_positions = [&](const LlamaRotaryEmbedding& rotary) {
    PositionEmbeddings made;
    if (rotary.inv_freq)
      made = parts.rotary ? parts.rotary(rotary, position_ids, hidden_states.dtype())
                          : rotary(hidden_states, position_ids);
    if (!opens_last && parts.rotary_dim >= -1) made.position_ids = text_position_ids;
    made.rows = given.rows;
    if (parts.hands_bounds) made.cu_seq_lens = given.cu_seq_lens;
    made.padding_mask = padding_mask;
    return made;
  };
  // `for layer_type in set(...)`: in one order or the other.
  if (parts.rotary_by_type) sliding_positions = embed_positions(sliding_rotary_emb);
  positions = embed_positions(rotary_emb);
  if (opens_last) hidden_states = streams->open(inputs_embeds, names);
  if (parts.norms_first) hidden_states = norm(hidden_states);
  TensorList nested;
  if (!context.behaviours.checkpoint_passes_keywords) nested = {positions.cos, positions.sin};
  const auto is_recurrent = [&](std::size_t i) { return parts.is_recurrent && parts.is_recurrent(i); };
  std::shared_ptr<SharedKeyValues> shared_kv_states;
  if (parts.first_shared_layer != 0) shared_kv_states = std::make_shared<SharedKeyValues>();
  positions.shared_kv_states = sliding_positions.shared_kv_states = shared_kv_states;
  if (parts.shares_topk) positions.topk_indices = std::make_shared<Tensor>();
  std::shared_ptr<Tensor> per_layer_input;  // of the layer that is run
  const auto block = [&](std::size_t i) -> BlockStack::Forward {
    const bool slides = windows[i] != 0;
    PositionEmbeddings its = slides && parts.rotary_by_type ? sliding_positions : positions;
    if (parts.rotates && !parts.rotates(i)) its.cos = its.sin = Tensor();
    its = cast_for_layer(std::move(its), context, module, i);
    const Tensor& its_mask = is_recurrent(i) ? padding_mask : causal_masks.of(slides || parts.layers_choose_angles);
    if (its.topk_indices) {
      PositionEmbeddings with_own = its;
      with_own.prev_topk_indices = *its.topk_indices;
      return [&layer = *layers[i], positions = std::move(with_own), causal_mask = its_mask](const Tensor& hidden) {
        return layer(hidden, positions, causal_mask);
      };
    }
    if (!per_layer_inputs)
      return [&layer = *layers[i], positions = its, causal_mask = its_mask, cache_position,
              not_its = parts.layers_choose_angles ? (slides ? positions : sliding_positions) : PositionEmbeddings()](
                 const Tensor& hidden) { return layer(hidden, positions, causal_mask); };
    per_layer_input = std::make_shared<Tensor>(select(per_layer_inputs, 2, static_cast<std::int64_t>(i)));
    return [&layer = *layers[i], positions = its, per_layer_input, causal_mask = its_mask](const Tensor& hidden) {
      PositionEmbeddings with_own = positions;
      with_own.per_layer_input = *per_layer_input;
      return layer(hidden, with_own, causal_mask);
    };
  };
  const auto kind = [&](std::size_t i) { return parts.kind ? parts.kind(i) : int{windows[i] != 0}; };
  std::size_t first = 0;
  if (deepstack && !deepstack->visual_embeds.empty()) {
    Tensor layer_outputs;  // Qwen3VLTextModel.forward: what a layer gave, until the next one has given its own
    const auto run_layer = [&] {
      layer_outputs = blocks.run(first, first + 1, std::move(hidden_states), checkpointing, block, {.nested = nested});
      ++first;
    };
    for (const Tensor& visual_embeds : deepstack->visual_embeds) {
      if (first == layers.size()) break;
      run_layer();
      hidden_states = deepstack_process(layer_outputs, deepstack->visual_pos_masks, visual_embeds);
    }
    if (first < layers.size()) {
      run_layer();
      hidden_states = std::move(layer_outputs);
    }
  }
  // Gemma4TextModel._maybe_slice_kv_shared_inputs: layers that make no keys need the kept tokens alone.
  const std::int64_t length = inputs_embeds.size(1);
  const bool lacks_mask = !causal_masks.full_attention || !causal_masks.sliding_attention;
  const bool slices = parts.first_shared_layer != 0 && logits_to_keep != 0 && length != 1 &&
                      masked != MaskedBy::flash_attention &&
                      !(masked == MaskedBy::sdpa && (logits_to_keep > 1 || given_by_generate) && lacks_mask);
  if (slices) {
    hidden_states = blocks.run(first, parts.first_shared_layer, std::move(hidden_states), checkpointing, block,
                               {.nested = nested, .kind = kind, .second = &per_layer_input});
    first = parts.first_shared_layer;
    const auto keep = [&](Tensor& x, int dim) {
      if (x) x = slice(x, dim, std::max<std::int64_t>(length - logits_to_keep, 0), std::min(logits_to_keep, length));
    };
    keep(hidden_states, 1);
    keep(per_layer_inputs, 1);
    for (PositionEmbeddings* its : {&positions, &sliding_positions}) {
      keep(its->cos, 1);
      keep(its->sin, 1);
    }
    keep(causal_masks.full_attention, 2);
    keep(causal_masks.sliding_attention, 2);
  }
  if (first < layers.size())
    hidden_states = blocks.run(first, layers.size(), std::move(hidden_states), checkpointing, block,
                               {.nested = nested, .kind = kind, .second = &per_layer_input});
  Tensor last_hidden_state;
  if (streams) {
    const Tensor closed = streams->close(hidden_states, names);
    last_hidden_state = norm(closed);
  } else {
    last_hidden_state = norm(hidden_states);
  }
  if (positions.topk_indices) positions.topk_indices->reset();  // a name of forward's
  if (context.hidden_states) context.hidden_states->tie_last(last_hidden_state);
  return last_hidden_state;
}

[[gnu::noinline]] static void refuse_adapted_head(Context& context) {
  context.refusal = Error{"not-modelled", "/training",
                          "found an adapter on the head and a loss that takes its weight, which are not supported "
                          "together yet: leave one of them out"};
}

ModelOutputs causal_lm_outputs(const Tensor& hidden_states, const Linear& lm_head, const ModelInputs& inputs,
                               const LossFunction* loss_function, const std::function<Tensor(Tensor)>& of_logits) {
  ModelOutputs outputs;
  if (inputs.labels) outputs.loss = loss_function->of_hidden_states(hidden_states, lm_head, inputs.labels);
  if (outputs.loss) {
    // It reads `lm_head.weight`, and with that what an adapter's layer makes of it.
    if (lm_head.wrapper) refuse_adapted_head(hidden_states.context());
    return outputs;
  }
  const std::int64_t length = hidden_states.size(1), kept = inputs.logits_to_keep;
  Tensor logits;
  {
    Tensor states = kept == 0 || kept >= length ? hidden_states : slice(hidden_states, 1, length - kept, kept);
    // `hidden_states.to(self.lm_head.weight.dtype)` of classes whose residuals are float32 (Mamba2ForCausalLM)
    const DType dtype = lm_head.weight.dtype();
    if (states.dtype() == DType::float32 && is_half(dtype) && !lm_head.quantized) states = to(states, dtype);
    logits = lm_head(states);
  }
  if (of_logits) logits = of_logits(std::move(logits));
  if (logits.context().behaviours.logits_float_in_model) logits = to(logits, DType::float32);
  if (inputs.labels) outputs.loss = (*loss_function)(logits, inputs.labels);
  outputs.others.push_back(std::move(logits));
  return outputs;
}

LanguageModel::LanguageModel(Context& context, const char* class_name, Modality modality, const DataConfig& data,
                             const ModelOptions& options)
    : context_(context),
      data_(data),
      dtype_(options.dtype),
      root_{&context, &parameters,   &buffers,         context.add_root(class_name, modality),
            modality, options.dtype, options.wrapping, options.quantizer} {}

void LanguageModel::make_head(const Builder& parent, const LlamaConfig& text, bool ties_embeddings) {
  lm_head_ = Linear(parent.child("lm_head", "Linear", Modality::language), text.hidden_size, text.vocab_size,
                    language_model_.parts.head_bias);
  if (ties_embeddings) tie(lm_head_, language_model_.embed_tokens);
}

Tensor LanguageModel::run_decoder(const Tensor& inputs_embeds, const MaskArguments& given,
                                  const Deepstack* deepstack) const {
  ModuleCall call(context_, language_model_.module);
  return call.result(language_model_(inputs_embeds, given, deepstack));
}

Tensor LanguageModel::run_text_model(const ModelInputs& inputs) const {
  ModuleCall call(context_, language_model_.module);
  Tensor position_ids = inputs.position_ids;  // 4.37 makes them before the embeddings
  if (!position_ids && context_.behaviours.rotary == Rotary::cached_per_layer)
    position_ids = language_model_.positions(context_, inputs.input_ids.size(1));
  const MaskArguments masked{position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q};
  Tensor inputs_embeds = inputs.inputs_embeds ? inputs.inputs_embeds : language_model_.embed(inputs.input_ids);
  Tensor per_layer_inputs;
  if (language_model_.per_layer) per_layer_inputs = language_model_.per_layer->get(inputs.input_ids);
  return call.result(
      language_model_.run(inputs_embeds, masked, nullptr, std::move(per_layer_inputs), inputs.logits_to_keep));
}

ModelInputs LanguageModel::make_inputs(bool with_labels) {
  const Shape tokens{data_.micro_batch_size, text_length()};
  ModelInputs batch;
  batch.input_ids = input(tokens);
  if (with_labels) batch.labels = make_labels();
  if (data_.rows.has_positions) batch.position_ids = input(tokens);
  if (data_.rows.has_mask) batch.attention_mask = input(tokens);
  if (data_.rows.has_bounds) {
    for (Tensor* bounds : {&batch.cu_seq_lens_q, &batch.cu_seq_lens_k})
      *bounds = input({data_.rows.count() + 1}, DType::int32);
    batch.seq_idx = input(tokens, DType::int32);
  }
  batch.rows = &data_.rows;
  complete(batch);
  return batch;
}

CausalLM::CausalLM(Context& context, const LlamaConfig& config, const DataConfig& data, const ModelOptions& options,
                   DecoderParts parts)
    : LanguageModel(context, config.names->causal_lm, Modality::language, data, options) {
  const char* const name = parts.model;
  make_decoder(root_.child(name, config.names->model), config, options, std::move(parts));
  make_head(root_, config, config.tie_word_embeddings);
  is_causal_lm = true;
  prompt_shape = {config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads,
                  config.head_dim};
}

ModelOutputs CausalLM::forward(const ModelInputs& inputs) {
  const Tensor hidden_states = run_text_model(inputs);
  const DecoderParts& parts = language_model_.parts;
  ModelOutputs outputs;
  if (parts.fused_states && inputs.labels && loss_function->wants_plain_head)
    outputs = causal_lm_outputs(parts.fused_states(hidden_states), lm_head_, inputs, loss_function);
  else
    outputs = causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function, parts.logits);
  if (parts.add_auxiliary_loss)
    parts.add_auxiliary_loss(outputs, inputs, inputs.labels && loss_function->replaces_forward());
  return outputs;
}

std::unique_ptr<Model> make_language_model(Context& context, const LlamaConfig& config, const DataConfig& data,
                                           const ModelOptions& options, DecoderParts parts) {
  if (config.classifier) return make_classifier(context, config, data, options, std::move(parts));
  return std::make_unique<CausalLM>(context, config, data, options, std::move(parts));
}

}  // namespace oometer
