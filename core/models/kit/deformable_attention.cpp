#include "models/kit/deformable_attention.h"

#include <utility>
#include <vector>

#include "ops/grid_sample.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Tensor level_starts(const Tensor& spatial_shapes) {
  Context& context = spatial_shapes.context();
  const std::int64_t levels = spatial_shapes.size(0);
  const Tensor first = integers(context, Op::zeros, {1});
  Tensor places = integers(context, Op::empty, {levels});
  const Tensor ends = cumsum(places, 0, DType::int64);
  places.reset();
  return cat({first, slice(ends, 0, 0, levels - 1)}, 0);
}

FeatureLevels flatten_levels(const TensorList& sources) {
  FeatureLevels result;
  result.spatial_shapes =
      integers(sources[0].context(), Op::empty, {static_cast<std::int64_t>(sources.size()), std::int64_t{2}});
  std::vector<Tensor> flattened;
  for (const Tensor& source : sources) {
    result.sizes.push_back({source.size(2), source.size(3)});
    flattened.push_back(
        transpose(reshape(source, {source.size(0), source.size(1), result.sizes.back().places()}), 1, 2));
  }
  result.flattened = cat(flattened, 1);
  flattened.clear();
  result.level_start_index = level_starts(result.spatial_shapes);
  return result;
}

DeformableAttention::DeformableAttention(const Builder& builder, const DeformableSizes& its)
    : sizes(its), module(builder.module) {
  if (!its.scales_points && !its.masks_padding) attn = builder.child("attn", "MultiScaleDeformableAttention").module;
  const std::int64_t points = its.heads * its.levels * its.points;
  sampling_offsets = Linear(builder.child("sampling_offsets", "Linear"), its.d_model, 2 * points, true);
  attention_weights = Linear(builder.child("attention_weights", "Linear"), its.d_model, points, true);
  value_proj = Linear(builder.child("value_proj", "Linear"), its.d_model, its.d_model, true);
  output_proj = Linear(builder.child("output_proj", "Linear"), its.d_model, its.d_model, true);
  if (its.scales_points) n_points_scale = builder.buffer({its.levels * its.points}, DType::float32);
}

namespace {

/// grid_sampler is among what autocast runs in the widest type of its arguments.
Tensor sampled(const Tensor& value, const Tensor& grid) {
  if (!value.context().autocast.enabled) return grid_sample(value, grid);
  const DType widest = value.dtype() == DType::float32 ? value.dtype() : grid.dtype();
  const Tensor x = to(value, widest), places = to(grid, widest);
  return grid_sample(x, places);
}

/// `(sampled * attention_weights).sum(-1).view(...)`, its queries first.
Tensor mixed(Tensor joined, const Tensor& weights, std::int64_t batch) {
  Tensor output = mul(joined, weights);
  joined.reset();
  output = sum(output, std::vector<int>{-1}, false);
  output = view(output, {batch, output.size(0) / batch * output.size(1), output.size(2)});
  return contiguous(transpose(output, 1, 2));
}

}  // namespace

// MultiScaleDeformableAttention.forward
Tensor DeformableAttention::sample(const Tensor& value_in, const FeatureLevels& encoder, const Tensor& locations_in,
                                   const Tensor& weights_in) const {
  ModuleCall call(value_in.context(), attn);
  const Tensor value = call.argument(value_in), locations = call.argument(locations_in),
               attention = call.argument(weights_in);
  return call.result(sample_levels(value, encoder, locations, attention));
}

Tensor DeformableAttention::sample_levels(const Tensor& value, const FeatureLevels& encoder, const Tensor& locations,
                                          const Tensor& attention) const {
  const std::int64_t batch = value.size(0), heads = value.size(2), dim = value.size(3), queries = locations.size(1);
  std::vector<std::int64_t> places;
  for (const FeatureLevels::Size& size : encoder.sizes) places.push_back(size.places());
  const TensorList values = split(value, places, 1);
  Tensor grids = mul_scalar(locations);
  grids = add_scalar(grids);  // - 1
  Tensor of_level, grid;
  TensorList found;
  for (std::size_t level = 0; level < values.size(); ++level) {
    const auto& [height, width] = encoder.sizes[level];
    const Tensor flat = reshape(values[level], {batch, places[level], heads * dim});
    of_level = reshape(transpose(flat, 1, 2), {batch * heads, dim, height, width});
    const Tensor its = select(grids, 3, static_cast<std::int64_t>(level));
    grid = reshape(transpose(its, 1, 2), {batch * heads, queries, sizes.points, 2});
    found.push_back(sampled(of_level, grid));
  }
  const Tensor weights = reshape(transpose(attention, 1, 2), {batch * heads, 1, queries, sizes.levels * sizes.points});
  Tensor joined = stack(found, 3);
  joined = reshape(joined, {batch * heads, dim, queries, sizes.levels * sizes.points});
  return mixed(std::move(joined), weights, batch);
}

// multi_scale_deformable_attention_v2
Tensor DeformableAttention::sample_scaled(const Tensor& value, const FeatureLevels& encoder, const Tensor& locations,
                                          const Tensor& attention) const {
  const std::int64_t batch = value.size(0), heads = value.size(2), dim = value.size(3), queries = locations.size(1);
  std::vector<std::int64_t> places;
  for (const FeatureLevels::Size& size : encoder.sizes) places.push_back(size.places());
  const TensorList values =
      split(reshape(permute(value, {0, 2, 3, 1}), {batch * heads, dim, value.size(1)}), places, 2);
  Tensor grids = mul_scalar(locations);
  grids = add_scalar(grids);  // - 1
  grids = reshape(permute(grids, {0, 2, 1, 3, 4}), {batch * heads, queries, locations.size(3), 2});
  const TensorList of_levels = split(grids, std::vector<std::int64_t>(values.size(), sizes.points), 2);
  Tensor of_level;
  std::vector<Tensor> found;
  for (std::size_t level = 0; level < values.size(); ++level) {
    const auto& [height, width] = encoder.sizes[level];
    of_level = reshape(values[level], {batch * heads, dim, height, width});
    found.push_back(sampled(of_level, of_levels[level]));
  }
  const Tensor weights =
      reshape(permute(attention, {0, 2, 1, 3}), {batch * heads, 1, queries, sizes.levels * sizes.points});
  Tensor result = mixed(cat(found, 3), weights, batch);
  return result;
}

Tensor DeformableAttention::operator()(const Tensor& argument, const Tensor& position_embeddings,
                                       const FeatureLevels& encoder, const Tensor& reference_points, Tensor& weights,
                                       const Tensor& attention_mask) const {
  Context& context = argument.context();
  ModuleCall call(context, module);
  const Tensor hidden_in = call.keyword(argument);
  const Tensor hidden_states = position_embeddings ? add(hidden_in, position_embeddings) : hidden_in;
  const std::int64_t batch = hidden_states.size(0), queries = hidden_states.size(1), levels = sizes.levels;
  if (sizes.scales_points) {  // do the shapes agree?
    const NoGrad no_grad(context);
    Tensor total = integers(context, Op::mul, {levels});
    total = integers(context, Op::sum, {});
    total = empty(context, Op::eq, {}, DType::boolean);
  }
  Tensor value = value_proj(encoder.flattened);
  if (attention_mask) {
    const Tensor places = unsqueeze(attention_mask, 2),
                 padding = sizes.masks_padding ? places : pointwise(Op::bitwise_not, {&places}, DType::boolean);
    value = masked_fill(value, padding);
  }
  value = view(value, {batch, value.size(1), sizes.heads, sizes.d_model / sizes.heads});
  Tensor offsets = sampling_offsets(hidden_states);
  const auto places = [&](const Tensor& x, const Shape& apart, const Shape& together) {
    return view(x, sizes.scales_points ? together : apart);
  };
  offsets = places(offsets, {batch, queries, sizes.heads, levels, sizes.points, 2},
                   {batch, queries, sizes.heads, levels * sizes.points, 2});
  weights = attention_weights(hidden_states);
  weights = view(weights, {batch, queries, sizes.heads, levels * sizes.points});
  weights = softmax(weights, context.autocast.enabled ? DType::float32 : weights.dtype());
  if (!sizes.scales_points) weights = view(weights, {batch, queries, sizes.heads, levels, sizes.points});
  // reference_points[:, :, None, :, None, :2], and 2: of them
  const auto part = [&](std::int64_t begin) {
    const Tensor points = slice(unsqueeze(reference_points, 2), 4, begin, 2);
    return sizes.scales_points ? points : unsqueeze(points, 4);
  };
  Tensor scale, offset;
  Tensor locations;
  if (reference_points.size(reference_points.ndim() - 1) == 2) {
    scale = integers(context, Op::stack, {levels, std::int64_t{2}});  // offset_normalizer
    offset = div(offsets, unsqueeze(scale, 1));
    locations = add(unsqueeze(unsqueeze(reference_points, 2), 4), offset);
    offset.reset();
  } else {
    if (sizes.scales_points) {
      scale = unsqueeze(to(n_points_scale, hidden_states.dtype()), 1);
      offset = mul(offsets, scale);
    } else {
      offset = div_scalar(offsets);
    }
    offset = mul(offset, part(2));
    offset = mul_scalar(offset);
    locations = add(part(0), offset);
    if (!sizes.scales_points) offset.reset();  // there it is a name
  }
  Tensor output = sizes.scales_points   ? sample_scaled(value, encoder, locations, weights)
                  : sizes.masks_padding ? sample_levels(value, encoder, locations, weights)
                                        : sample(value, encoder, locations, weights);
  output = output_proj(output);
  return call.result(output);
}

Tensor get_reference_points(const FeatureLevels& levels, const Tensor& valid_ratios) {
  Context& context = valid_ratios.context();
  const auto made = [&](Op op, const Shape& sizes) { return empty(context, op, sizes, valid_ratios.dtype()); };
  const std::int64_t batch = valid_ratios.size(0);
  TensorList parts;
  Tensor ref_y, ref_x, ref;
  for (const FeatureLevels::Size& size : levels.sizes) {
    Tensor rows = made(Op::arange, {size.height});
    Tensor columns = made(Op::arange, {size.width});
    ref_y = std::move(rows);
    ref_x = std::move(columns);
    const auto scaled = [&] {
      const Tensor flat = made(Op::clone, {size.places()});
      const Tensor valid = made(Op::mul, {batch, 1});
      return made(Op::div, {batch, size.places()});
    };
    ref_y = scaled();
    ref_x = scaled();
    ref = stack({ref_x, ref_y}, 2);
    parts.push_back(ref);
  }
  const Tensor joined = cat(std::vector<Tensor>(parts.begin(), parts.end()), 1);
  return mul(unsqueeze(joined, 2), unsqueeze(valid_ratios, 1));
}

}  // namespace oometer
