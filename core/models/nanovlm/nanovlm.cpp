#include "models/nanovlm/nanovlm.h"

#include <algorithm>

#include "models/clip/clip.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "rounding.h"

/// Names and order of steps are those of nanoVLM's models/vision_transformer.py, modality_projector.py,
/// language_model.py and vision_language_model.py. The model is made on the host and brought to the device, a module's
/// children before its own parameters (torch.nn.Module._apply).
namespace oometer {

namespace {

// y.transpose(1, 2).contiguous().view(B, T, C)
Tensor joined_heads(const Tensor& y, const Shape& sizes) { return view(contiguous(transpose(y, 1, 2)), sizes); }

Tensor attend(const AttentionCall& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  return scaled_dot_product_attention(choose_kernel(call, q, k, v, {}), q, k, v, {}, {call.causal, false, 0});
}

struct ViTBlock {
  ViTBlock(const Builder& builder, const ClipVisionConfig& config, AttentionKind attention)
      : ln1(builder.child("ln1", "LayerNorm"), config.hidden_size),
        head_dim(config.hidden_size / config.num_attention_heads),
        call{attention, false, 0},
        module(builder.module) {
    const Builder inner = builder.child("attn", "ViTMultiHeadAttention");
    attn = inner.module;
    qkv_proj = Linear(inner.child("qkv_proj", "Linear"), config.hidden_size, 3 * config.hidden_size, true);
    out_proj = Linear(inner.child("out_proj", "Linear"), config.hidden_size, config.hidden_size, true);
    ln2 = LayerNorm(builder.child("ln2", "LayerNorm"), config.hidden_size);
    ClipLayerConfig sizes;
    sizes.hidden_size = config.hidden_size;
    sizes.intermediate_size = config.intermediate_size;
    sizes.hidden_act = config.hidden_act;
    mlp = ClipMLP(builder.child("mlp", "ViTMLP"), sizes);
  }

  Tensor attention(const Tensor& x) const {
    const ModuleScope scope(x.context(), attn);
    const std::int64_t width = x.size(2);
    const Tensor qkv = qkv_proj(x);
    const TensorList parts = split(qkv, {width, width, width}, 2);
    const Tensor q = heads_of(parts[0], head_dim), k = heads_of(parts[1], head_dim), v = heads_of(parts[2], head_dim);
    return out_proj(joined_heads(attend(call, q, k, v), x.sizes()));
  }

  Tensor operator()(const Tensor& x_in) const {
    const ModuleScope scope(x_in.context(), module);
    Tensor x;
    {
      const Tensor output = attention(ln1(x_in));
      x = add(x_in, output);
    }
    const Tensor output = mlp(ln2(x));
    return add(x, output);
  }

  LayerNorm ln1, ln2;
  Linear qkv_proj, out_proj;
  ClipMLP mlp;
  std::int64_t head_dim = 0;
  AttentionCall call;
  ModuleId attn = 0, module = 0;
};

struct ViT {
  ViT() = default;
  ViT(const Builder& builder, const ClipVisionConfig& config, AttentionKind attention) : module(builder.module) {
    const Builder inner = builder.child("patch_embedding", "ViTPatchEmbeddings");
    patch_embedding = inner.module;
    conv = Conv2d(inner.child("conv", "Conv2d"), config.num_channels, config.hidden_size, config.patch_size, true);
    position_embedding = inner.parameter("position_embedding", {1, config.num_patches(), config.hidden_size});
    for (std::int32_t i = 0; i < config.num_hidden_layers; ++i)
      blocks.emplace_back(builder.child("blocks", "ViTBlock", i), config, attention);
    layer_norm = LayerNorm(builder.child("layer_norm", "LayerNorm"), config.hidden_size);
  }

  Tensor operator()(const Tensor& image) const {
    const ModuleScope scope(image.context(), module);
    Tensor x;
    {
      const ModuleScope embedding(image.context(), patch_embedding);
      x = conv(image);
      x = transpose(view(x, {x.size(0), x.size(1), checked_product(x.size(2), x.size(3))}), 1, 2);
      x = add(x, position_embedding);
    }
    for (const ViTBlock& block : blocks) x = block(x);
    return layer_norm(x);
  }

  Conv2d conv;
  Tensor position_embedding;
  std::vector<ViTBlock> blocks;
  LayerNorm layer_norm;
  ModuleId patch_embedding = 0, module = 0;
};

struct RMSNorm {
  RMSNorm() = default;
  RMSNorm(const Builder& builder_in, std::int64_t width) : module(builder_in.module) {
    Builder builder = builder_in;
    builder.in_norm = true;
    weight = builder.parameter("weight", {width});
  }

  Tensor operator()(const Tensor& x) const {
    const ModuleScope scope(x.context(), module);
    Tensor irms = pow(x, 2);
    irms = mean(irms, -1, true);
    irms = add_scalar(irms);
    irms = rsqrt(irms);
    const Tensor normalized = mul(x, irms);
    return mul(normalized, weight);
  }

  Tensor weight;
  ModuleId module = 0;
};

struct LanguageModelBlock {
  LanguageModelBlock(const Builder& builder, const LlamaConfig& config, AttentionKind attention)
      : mlp(builder.child("mlp", "LanguageModelMLP"), config),
        head_dim(config.head_dim),
        groups(config.num_attention_heads / config.num_key_value_heads),
        call{attention, true, 0},
        module(builder.module) {
    const Builder inner = builder.child("attn", "LanguageModelGroupedQueryAttention");
    attn = inner.module;
    const std::int64_t width = config.hidden_size, narrow = config.num_key_value_heads * head_dim;
    q_proj = Linear(inner.child("q_proj", "Linear"), width, width, false);
    k_proj = Linear(inner.child("k_proj", "Linear"), width, narrow, false);
    v_proj = Linear(inner.child("v_proj", "Linear"), width, narrow, false);
    out_proj = Linear(inner.child("out_proj", "Linear"), width, width, false);
    norm1 = RMSNorm(builder.child("norm1", "RMSNorm"), width);
    norm2 = RMSNorm(builder.child("norm2", "RMSNorm"), width);
  }

  // Tensor.repeat_interleave(groups, dim=1)
  Tensor repeat_interleave(const Tensor& x) const {
    const Tensor wide = expand(unsqueeze(x, 2), {x.size(0), x.size(1), groups, x.size(2), x.size(3)});
    return view(wide.is_contiguous() ? clone(wide) : contiguous(wide),
                {x.size(0), checked_product(x.size(1), groups), x.size(2), x.size(3)});
  }

  /// Keys and values of a layer, of so many tokens more. The old ones go when both new ones are there.
  static void append(Tensor* cached, const Tensor& key, const Tensor& value, std::int64_t tokens) {
    Tensor longer[2];
    for (int i : {0, 1}) {
      Context& context = key.context();
      Shape sizes = cached[i].sizes();
      sizes[2] += tokens;
      longer[i] = empty(context, Op::cat, sizes, (i == 0 ? key : value).dtype(), Role::kv_cache);
    }
    for (int i : {0, 1}) cached[i] = std::move(longer[i]);
  }

  /// As `attention` leaves them, whatever else it does.
  void grow(Tensor* cached, std::int64_t tokens) const {
    Context& context = cached[0].context();
    const ModuleScope scope(context, attn);
    { const GemmWorkspace workspace(context); }
    append(cached, cached[0], cached[1], tokens);
    const Tensor k_exp = repeat_interleave(cached[0]), v_exp = repeat_interleave(cached[1]);
  }

  Tensor attention(const Tensor& x, const PositionEmbeddings& positions, TensorList& kv_cache,
                   std::size_t layer) const {
    Context& context = x.context();
    const ModuleScope scope(context, attn);
    const bool is_prefill = kv_cache.size() <= 2 * layer;
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor v_exp, k_exp, k, q;
    AttentionInputs current = project(x, q_proj, k_proj, v_proj, head_dim, false);
    const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
    q = rotate(current.query, cos, sin);
    k = rotate(current.key, cos, sin);
    if (is_prefill) {
      for (const Tensor* states : {&k, &current.value}) {
        if (!context.training) context.set_role(*states, Role::kv_cache, attn);
        kv_cache.push_back(*states);
      }
    } else {
      append(&kv_cache[2 * layer], k, current.value, x.size(1));
    }
    k_exp = repeat_interleave(kv_cache[2 * layer]);
    v_exp = repeat_interleave(kv_cache[2 * layer + 1]);
    const AttentionCall own{call.kind, is_prefill, 0};
    Tensor y = out_proj(joined_heads(attend(own, q, k_exp, v_exp), x.sizes()));
    current.query.reset();
    current.key.reset();
    return y;
  }

  // LanguageModelMLP.forward: all three are there while down_proj runs
  Tensor feed_forward(const Tensor& x) const {
    const ModuleScope scope(x.context(), mlp.module);
    const Tensor gate = activate(mlp.act_fn, mlp.gate_proj(x));
    const Tensor up = mlp.up_proj(x), product = mul(gate, up);
    return mlp.down_proj(product);
  }

  Tensor operator()(const Tensor& x_in, const PositionEmbeddings& positions, TensorList& kv_cache,
                    std::size_t layer) const {
    const ModuleScope scope(x_in.context(), module);
    Tensor x = norm1(x_in);
    x = attention(x, positions, kv_cache, layer);
    x = add(x_in, x);
    const Tensor res = x;
    x = norm2(x);
    x = feed_forward(x);
    return add(res, x);
  }

  LlamaMLP mlp;
  Linear q_proj, k_proj, v_proj, out_proj;
  RMSNorm norm1, norm2;
  std::int64_t head_dim = 0, groups = 1;
  AttentionCall call;
  ModuleId attn = 0, module = 0;
};

struct NanoVlmLanguageModel {
  NanoVlmLanguageModel() = default;
  NanoVlmLanguageModel(const Builder& builder, const LlamaConfig& config, AttentionKind attention)
      : token_embedding(builder.child("token_embedding", "Embedding"), config.vocab_size, config.hidden_size),
        module(builder.module) {
    const Builder inner = builder.child("rotary_embd", "RotaryEmbedding");
    rotary_embd = inner.module;
    inv_freq = inner.buffer({config.head_dim / 2}, DType::float32);
    for (std::int32_t i = 0; i < config.num_hidden_layers; ++i)
      blocks.emplace_back(builder.child("blocks", "LanguageModelBlock", i), config, attention);
    norm = RMSNorm(builder.child("norm", "RMSNorm"), config.hidden_size);
    const Builder last = builder.child("head", "Linear");
    if (config.tie_word_embeddings) {  // before it is on the device: there never were two
      head.weight = token_embedding.weight;
      head.module = last.module;
    } else {
      head = Linear(last, config.hidden_size, config.vocab_size, false);
    }
  }

  PositionEmbeddings rotary(const Tensor& position_ids) const {
    Context& context = position_ids.context();
    const ModuleScope scope(context, rotary_embd);
    const NoGrad no_grad(context);
    const std::int64_t batch = position_ids.size(0), length = position_ids.size(1);
    Tensor emb, freqs, flat_position_ids, max_seq;  // which go last first
    max_seq = [&] {
      const Tensor all = contiguous(position_ids);
      return reduce(Op::max, all, {0, 1}, false, DType::int64);
    }();
    max_seq = add_scalar(max_seq);
    { const Tensor is_longer = empty(context, Op::gt, {}, DType::boolean); }
    flat_position_ids = reshape(position_ids, {checked_product(batch, length)});
    flat_position_ids = to(flat_position_ids, DType::float32);
    freqs = mul(unsqueeze(flat_position_ids, -1), unsqueeze(inv_freq, 0));
    freqs = view(freqs, {batch, length, inv_freq.size(0)});
    emb = cat({freqs, freqs}, -1);
    const auto of = [&](Op op) {
      const Tensor values = pointwise(op, {&emb}, DType::float32);
      return mul_scalar(values);
    };
    PositionEmbeddings positions;
    positions.cos = of(Op::cos);
    positions.sin = of(Op::sin);
    return positions;
  }

  Tensor operator()(const Tensor& x_in, TensorList& kv_cache) const {
    Context& context = x_in.context();
    const ModuleScope scope(context, module);
    const std::int64_t batch = x_in.size(0), length = x_in.size(1);
    const Tensor current_position_ids =
        expand(unsqueeze(empty(context, Op::arange, {length}, DType::int64), 0), {batch, length});
    const PositionEmbeddings positions = rotary(current_position_ids);
    Tensor x = x_in;
    for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, positions, kv_cache, i);
    return norm(x);
  }

  Embedding token_embedding;
  std::vector<LanguageModelBlock> blocks;
  RMSNorm norm;
  Linear head;
  Tensor inv_freq;
  ModuleId rotary_embd = 0, module = 0;
};

struct ModalityProjector {
  ModalityProjector() = default;
  ModalityProjector(const Builder& builder, const NanoVlmConfig& config)
      : proj(builder.child("proj", "Linear"), config.vision.hidden_size * config.scale_factor * config.scale_factor,
             config.text.hidden_size, false),
        side(config.vision.image_size / config.vision.patch_size),
        scale_factor(config.scale_factor),
        module(builder.module) {}

  Tensor operator()(const Tensor& x_in) const {
    const ModuleScope scope(x_in.context(), module);
    const std::int64_t batch = x_in.size(0), width = x_in.size(2), out = side / scale_factor;
    Tensor x = view(x_in, {batch, out, scale_factor, out, scale_factor, width});
    x = contiguous(transpose(x, 2, 3));
    x = view(x, {batch, out * out, width * scale_factor * scale_factor});
    return proj(x);
  }

  Linear proj;
  std::int64_t side = 0, scale_factor = 1;
  ModuleId module = 0;
};

class NanoVlm : public Model {
 public:
  NanoVlm(Context& context, const NanoVlmConfig& config, const DataConfig& data, const ModelOptions& options)
      : context_(context), config_(config), data_(data), dtype_(options.dtype) {
    loss_type = LossType::cross_entropy;
    const Builder model{&context,       &parameters,  &buffers, context.add_root("VisionLanguageModel", Modality::none),
                        Modality::none, options.dtype};
    vision_encoder_ = ViT(model.child("vision_encoder", "ViT", Modality::vision), config.vision, options.attention);
    decoder_ = NanoVlmLanguageModel(model.child("decoder", "LanguageModel", Modality::language), config.text,
                                    options.attention);
    if (config.tie_word_embeddings) tied.push_back({decoder_.head.weight, decoder_.head.module});
    mp_ = ModalityProjector(model.child("MP", "ModalityProjector", Modality::projector), config);
  }

  ModelInputs make_inputs(bool with_labels) override {
    ModelInputs batch = make_prompt();
    if (with_labels) batch.labels = empty(context_, Op::input, batch.input_ids.sizes(), DType::int64, Role::input);
    return batch;
  }

  // VisionLanguageModel.generate, without a mask, as its generate.py calls it
  bool generate(std::int64_t new_tokens, std::int64_t executed) override {
    const ModelInputs prompt = make_prompt();
    context_.begin_phase(PhaseName::prefill, 1);
    const std::int64_t batch = data_.micro_batch_size;
    TensorList kv_cache_list, newly_generated_ids_list;
    const Tensor image_embd = mp_(vision_encoder_(prompt.pixel_values));
    const Tensor prompt_token_embeds = decoder_.token_embedding(prompt.input_ids);
    const Tensor initial_combined_embeds = replace_img_tokens(prompt.input_ids, prompt_token_embeds, image_embd);
    const Tensor prefill_output = decoder_(initial_combined_embeds, kv_cache_list);
    Tensor current_logits = decoder_.head(select(prefill_output, 1, data_.sequence_length - 1));
    context_.begin_phase(PhaseName::decode, 1);
    Tensor next_token_embed, decode_step_output, last_token_output;
    const std::int64_t from = (executed + 1) / 2, until = std::max(from, new_tokens - executed / 2);
    for (std::int64_t i = 0; i < new_tokens; ++i) {
      if (i == from) i = grow(kv_cache_list, newly_generated_ids_list, from, until);
      newly_generated_ids_list.push_back(reduce(Op::argmax, current_logits, {1}, true, DType::int64));
      next_token_embed = decoder_.token_embedding(newly_generated_ids_list.back());
      decode_step_output = decoder_(next_token_embed, kv_cache_list);
      last_token_output = select(decode_step_output, 1, 0);
      current_logits = decoder_.head(last_token_output);
    }
    replace_after_eos(batch, new_tokens);
    context_.finish();
    return true;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    TensorList kv_cache;  // `_`, bound until forward returns
    Tensor updated_token_embd, token_embd, image_embd;
    image_embd = vision_encoder_(inputs.pixel_values);
    image_embd = mp_(image_embd);
    token_embd = decoder_.token_embedding(inputs.input_ids);
    updated_token_embd = replace_img_tokens(inputs.input_ids, token_embd, image_embd);
    Tensor logits = decoder_(updated_token_embd, kv_cache);
    logits = decoder_.head(logits);
    ModelOutputs outputs;
    if (const Tensor& targets = inputs.labels)
      outputs.loss =
          (*loss_function)(view(logits, {targets.numel(), logits.size(2)}), view(targets, {targets.numel()}));
    outputs.others.push_back(logits);
    return outputs;
  }

 private:
  ModelInputs make_prompt() const {
    const std::int64_t batch = data_.micro_batch_size;
    ModelInputs prompt;
    prompt.pixel_values =
        empty(context_, Op::input, {batch, config_.vision.num_channels, data_.image_height, data_.image_width}, dtype_,
              Role::input);
    prompt.input_ids = empty(context_, Op::input, {batch, data_.sequence_length}, DType::int64, Role::input);
    return prompt;
  }

  /// Decodes the tokens [from, until) as far as the cache, and what else grows with them, is concerned. Returns
  /// `until`.
  std::int64_t grow(TensorList& kv_cache, TensorList& ids, std::int64_t from, std::int64_t until) const {
    constexpr std::int64_t kMostGrowths = 128;
    const std::int64_t stride = std::max<std::int64_t>(1, divide_up(until - from, kMostGrowths));
    for (std::int64_t grown = 0; from < until; from += grown) {
      grown = std::min(stride, until - from);
      // An allocation a token, of whole blocks of 512 bytes.
      ids.push_back(empty(context_, Op::argmax, {grown, round_up(data_.micro_batch_size, 64)}, DType::int64));
      for (std::size_t i = 0; i < decoder_.blocks.size(); ++i) decoder_.blocks[i].grow(&kv_cache[2 * i], grown);
    }
    return until;
  }

  // generate's last lines, where the tokenizer has an eos_token_id
  void replace_after_eos(std::int64_t batch, std::int64_t new_tokens) const {
    const std::int64_t ids = checked_product(batch, new_tokens);
    const Workspace generated_ids(context_, Op::cat, 8 * ids), eos_mask(context_, Op::eq, ids),
        col_indices(context_, Op::arange, 8 * new_tokens), masked_col_indices(context_, Op::where, 8 * ids),
        first_eos_indices(context_, Op::clamp, 8 * batch), actual_first_eos_indices(context_, Op::clamp, 8 * batch),
        for_comparison(context_, Op::arange, 8 * new_tokens), replace_mask(context_, Op::gt, ids);
  }

  // _replace_img_tokens_with_embd
  Tensor replace_img_tokens(const Tensor& input_ids, const Tensor& token_embd, const Tensor& image_embd) const {
    const std::int64_t batch = token_embd.size(0), tokens = image_embd.size(1);
    Tensor sequence_idx_fill, seq_offsets, batch_idx_fill, start_indices;
    Tensor updated = clone(token_embd);
    {
      Tensor is_image = pointwise(Op::eq, {&input_ids}, DType::boolean);
      is_image = to(is_image, DType::int32);
      start_indices = integers(context_, Op::argmax, {batch});
    }
    batch_idx_fill = expand(unsqueeze(integers(context_, Op::arange, {batch}), 1), {batch, tokens});
    seq_offsets = integers(context_, Op::arange, {tokens});
    sequence_idx_fill = integers(context_, Op::add, {batch, tokens});
    const Tensor values = to(image_embd, updated.dtype());
    return index_put_(std::move(updated), batch_idx_fill, sequence_idx_fill, values);
  }

  Context& context_;
  NanoVlmConfig config_;
  DataConfig data_;
  DType dtype_;
  ViT vision_encoder_;
  NanoVlmLanguageModel decoder_;
  ModalityProjector mp_;
};

}  // namespace

std::unique_ptr<Model> build_nanovlm(Context& context, const NanoVlmConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<NanoVlm>(context, config, data, options);
}

}  // namespace oometer
