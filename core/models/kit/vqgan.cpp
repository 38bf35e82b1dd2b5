#include "models/kit/vqgan.h"

#include <utility>

#include "config/reader.h"
#include "models/vit/vit.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

namespace {

constexpr std::int64_t kGroups = 32;

/// `x *= torch.sigmoid(x)`
void gate(Tensor& x) {
  const Tensor gates = sigmoid(x);
  x = mul_in_place(x, gates);
}

/// F.pad(x, (0, 1, 0, 1))
Tensor pad_corner(const Tensor& x) {
  Record record(Op::constant_pad_nd,
                [](Backward& b) { b.give(0, empty(b.context, Op::constant_pad_nd, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  const Shape sizes{x.size(0), x.size(1), x.size(2) + 1, x.size(3) + 1};
  return record.output(in_order_of(x, Op::constant_pad_nd, sizes, is_channels_last(x)));
}

AnyConv2d::Options same(std::int64_t kernel) { return {.kernel = kernel, .padding = kernel / 2}; }

}  // namespace

VqganConfig read_vqgan_config(ConfigReader& reader, const VqganConfig& defaults) {
  VqganConfig c = defaults;
  c.embed_dim = reader.integer("embed_dim", c.embed_dim);
  c.num_embeddings = reader.integer("num_embeddings", c.num_embeddings);
  c.double_latent = reader.boolean("double_latent", c.double_latent);
  c.latent_channels = reader.integer("latent_channels", c.latent_channels, {1, 65'536});
  c.in_channels = reader.integer("in_channels", c.in_channels, {1, 65'536});
  c.base_channels = reader.integer("base_channels", c.base_channels, {1, 65'536});
  c.num_res_blocks = reader.integer("num_res_blocks", c.num_res_blocks, {1, 100});
  if (reader.has("channel_multiplier")) c.channel_multiplier = reader.integers("channel_multiplier", {1, 1024});
  if (c.channel_multiplier.empty() || c.channel_multiplier.size() > 16) {
    reader.fail("channel_multiplier", "out-of-range", "expected between 1 and 16 multipliers");
    c.channel_multiplier = {1};
  }
  c.dropout = reader.number("dropout", 0.0, 0.0, 1.0);
  if (c.base_channels % kGroups != 0)
    reader.fail_found("base_channels", "inconsistent", "expected a multiple of 32, the groups of its norms");
  reader.ignore({"model_type", "initializer_range"});
  return c;
}

VqganGroupNorm::VqganGroupNorm(const Builder& builder_in, std::int64_t channels) : module(builder_in.module) {
  Builder builder = builder_in;
  builder.in_norm = builder.context->log.modules[module].name == std::string_view("norm");
  weight = builder.parameter("weight", {channels});
  bias = builder.parameter("bias", {channels});
}

Tensor VqganGroupNorm::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  return call.result(group_norm(call.argument(x), kGroups, weight, bias));
}

VqganResnetBlock::VqganResnetBlock(const Builder& builder, const VqganConfig& config, std::int64_t in, std::int64_t out)
    : builders{builder.child("norm1", "GroupNorm"), builder.child("conv1", "Conv2d"),
               builder.child("norm2", "GroupNorm"), builder.child("conv2", "Conv2d"),
               in == out ? builder : builder.child("nin_shortcut", "Conv2d")},
      in_channels(in),
      out_channels(out),
      dropout_rate(config.dropout),
      module(builder.module) {}

void VqganResnetBlock::make() {
  norm1 = VqganGroupNorm(builders[0], in_channels);
  conv1 = AnyConv2d(builders[1], in_channels, out_channels, same(3));
  norm2 = VqganGroupNorm(builders[2], out_channels);
  conv2 = AnyConv2d(builders[3], out_channels, out_channels, same(3));
  if (in_channels != out_channels) nin_shortcut = AnyConv2d(builders[4], in_channels, out_channels, same(1));
}

Tensor VqganResnetBlock::operator()(const Tensor& hidden_in) const {
  ModuleCall call(hidden_in.context(), module);
  Tensor residual = hidden_in, hidden_states = norm1(hidden_in);
  gate(hidden_states);
  hidden_states = conv1(hidden_states);
  hidden_states = norm2(hidden_states);
  gate(hidden_states);
  hidden_states = dropout(hidden_states, dropout_rate);
  hidden_states = conv2(hidden_states);
  if (in_channels != out_channels) residual = nin_shortcut(residual);
  return call.result(add(residual, hidden_states));
}

VqganAttnBlock::VqganAttnBlock(const Builder& builder, std::int64_t width)
    : builders{builder.child("norm", "GroupNorm"), builder.child("q", "Conv2d"), builder.child("k", "Conv2d"),
               builder.child("v", "Conv2d"), builder.child("proj_out", "Conv2d")},
      channels(width),
      module(builder.module) {}

void VqganAttnBlock::make() {
  norm = VqganGroupNorm(builders[0], channels);
  q = AnyConv2d(builders[1], channels, channels, same(1));
  k = AnyConv2d(builders[2], channels, channels, same(1));
  v = AnyConv2d(builders[3], channels, channels, same(1));
  proj_out = AnyConv2d(builders[4], channels, channels, same(1));
}

Tensor VqganAttnBlock::operator()(const Tensor& hidden_in) const {
  Context& context = hidden_in.context();
  ModuleCall call(context, module);
  const Tensor hidden_states = norm(hidden_in);
  Tensor query_states = q(hidden_states), key_states = k(hidden_states), value_states = v(hidden_states);
  const Shape sizes = query_states.sizes(), flat{sizes[0], sizes[1], checked_product(sizes[2], sizes[3])};
  query_states = transpose(reshape(query_states, flat), 1, 2);
  key_states = reshape(key_states, flat);
  Tensor attn_weights = bmm(autocast_lower(query_states), autocast_lower(key_states));
  attn_weights = mul_scalar(attn_weights);
  attn_weights = softmax(attn_weights, context.autocast.enabled ? DType::float32 : attn_weights.dtype());
  value_states = reshape(value_states, flat);
  attn_weights = transpose(attn_weights, 1, 2);
  Tensor attn_output = bmm(autocast_lower(value_states), autocast_lower(attn_weights));
  attn_output = reshape(attn_output, sizes);
  attn_output = proj_out(attn_output);
  return call.result(add(hidden_in, attn_output));
}

VqganMidBlock::VqganMidBlock(const Builder& builder, const VqganConfig& config)
    : attends(config.mid_attends), module(builder.module) {
  const std::int64_t width = config.last_channels();
  block_1 = VqganResnetBlock(builder.child("block_1", config.family->resnet_block), config, width, width);
  block_1.make();
  const Builder attention = builder.child("attn_1", attends ? config.family->attn_block : "Identity");
  if (attends) {
    attn_1 = VqganAttnBlock(attention, width);
    attn_1.make();
  }
  block_2 = VqganResnetBlock(builder.child("block_2", config.family->resnet_block), config, width, width);
  block_2.make();
}

Tensor VqganMidBlock::operator()(const Tensor& hidden_in) const {
  Tensor hidden_states = block_1(hidden_in);
  if (attends) hidden_states = attn_1(hidden_states);
  return block_2(hidden_states);
}

// Python makes a block and its attention by turns, and lists the blocks first.
VqganLevel::VqganLevel(const Builder& builder, const VqganConfig& config, std::int64_t blocks, std::int64_t in,
                       std::int64_t out, bool attends) {
  for (std::int32_t i = 0; i < blocks; ++i)
    block.emplace_back(builder.child("block", config.family->resnet_block, i), config, i == 0 ? in : out, out);
  for (std::int32_t i = 0; attends && i < blocks; ++i)
    attn.emplace_back(builder.child("attn", config.family->attn_block, i), out);
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i].make();
    if (attends) attn[i].make();
  }
}

VqganEncoder::VqganEncoder(const Builder& builder, const VqganConfig& config)
    : conv_in(builder.child("conv_in", "Conv2d"), config.in_channels, config.base_channels, same(3)),
      module(builder.module) {
  std::int64_t width = config.base_channels;
  for (std::size_t i = 0; i < config.levels(); ++i) {
    const Builder level = builder.child("down", "Module", static_cast<std::int32_t>(i));
    down.emplace_back(level, config, config.num_res_blocks, width, config.channels(i), config.attends[i]);
    width = config.channels(i);
    if (i + 1 == config.levels()) break;
    const Builder sample = level.child("downsample", config.family->downsample);
    downsample.emplace_back(sample.child("conv", "Conv2d"), width, width, AnyConv2d::Options{.kernel = 3, .stride = 2});
    downsample_module.push_back(sample.module);
  }
  mid = VqganMidBlock(builder.child("mid", config.family->mid), config);
  norm_out = VqganGroupNorm(builder.child("norm_out", "GroupNorm"), width);
  conv_out = AnyConv2d(builder.child("conv_out", "Conv2d"), width,
                       config.latent_channels * (config.double_latent ? 2 : 1), same(3));
}

Tensor VqganEncoder::operator()(const Tensor& pixel_values) const {
  Context& context = pixel_values.context();
  ModuleCall call(context, module);
  check_pixels(pixel_values, conv_in.weight);
  TensorList hidden_states;  // all of them, until forward returns
  hidden_states.push_back(conv_in(pixel_values));
  Tensor hidden_state;
  for (std::size_t i = 0; i < down.size(); ++i) {
    for (std::size_t j = 0; j < down[i].block.size(); ++j) {
      hidden_state = down[i].block[j](hidden_states.back());
      if (!down[i].attn.empty()) hidden_state = down[i].attn[j](hidden_state);
      hidden_states.push_back(hidden_state);
    }
    if (i + 1 == down.size()) break;
    ModuleCall self(context, downsample_module[i]);
    const Tensor padded = pad_corner(hidden_states.back());
    hidden_states.push_back(downsample[i](padded));
  }
  Tensor last_hidden_state = mid(hidden_states.back());
  last_hidden_state = norm_out(last_hidden_state);
  gate(last_hidden_state);
  return call.result(conv_out(last_hidden_state));
}

Vqgan::Vqgan(const Builder& builder, const VqganConfig& config)
    : encoder(builder.child("encoder", config.family->encoder), config) {
  const Builder quantize = builder.child("quantize", config.family->quantizer);
  quantizer = quantize.module;
  embedding = Embedding(quantize.child("embedding", "Embedding"), config.num_embeddings, config.embed_dim);
  quant_conv = AnyConv2d(builder.child("quant_conv", "Conv2d"), config.latent_channels, config.embed_dim, same(1));
  post_quant_conv =
      AnyConv2d(builder.child("post_quant_conv", "Conv2d"), config.embed_dim, config.latent_channels, same(1));
}

VqganOutput Vqgan::encode(const Tensor& pixel_values) const {
  Context& context = pixel_values.context();
  VqganOutput output;
  output.last_hidden_state = encoder(pixel_values);
  const Tensor conv_hidden_states = quant_conv(output.last_hidden_state);
  ModuleCall call(context, quantizer);
  const Tensor given = call.argument(conv_hidden_states);
  Tensor hidden_state = permute(given, {0, 2, 3, 1});
  hidden_state = contiguous(hidden_state);
  const Tensor flattened =
      view(hidden_state, {hidden_state.numel() / embedding.weight.size(1), embedding.weight.size(1)});
  const auto squares = [](const Tensor& x, bool keepdim) {
    const Tensor squared = pow(x, 2);
    return sum(squared, {1}, keepdim);
  };
  Tensor distances;
  {
    Tensor sums;
    {
      const Tensor of_states = squares(flattened, true), of_entries = squares(embedding.weight, false);
      sums = add(of_states, of_entries);
    }
    Tensor products = einsum("bd", "dn", "bn", flattened, transpose(embedding.weight, 0, 1));
    products = mul_scalar(products);
    distances = sub(sums, products);
  }
  {
    const NoGrad no_grad(context);
    output.image_tokens = reduce(Op::argmax, distances, {1}, false, DType::int64);  // of the same memory as argmin
  }
  Tensor quantized = view(embedding(output.image_tokens), hidden_state.sizes());
  const auto error = [](const Tensor& a, const Tensor& b) {
    Tensor difference = sub(a, b);
    difference = pow(difference, 2);
    return mean_all(difference);
  };
  {
    const Tensor to_entries = error(detach(quantized), hidden_state);
    Tensor to_states = error(quantized, detach(hidden_state));
    to_states = mul_scalar(to_states);
    output.embedding_loss = add(to_entries, to_states);
  }
  {
    Tensor difference = sub(quantized, hidden_state);
    difference = detach(difference);
    quantized = add(hidden_state, difference);
  }
  quantized = permute(quantized, {0, 3, 1, 2});
  output.quantized_last_hidden_state = call.result(contiguous(quantized));
  return output;
}

}  // namespace oometer
