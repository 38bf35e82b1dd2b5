#include <utility>

#include "models/rt_detr/rt_detr.h"
#include "ops/detection.h"
#include "ops/host_index.h"
#include "ops/integers.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, loss/loss_rt_detr.py
namespace oometer {

namespace {

/// get_cdn_matched_indices: which query is to find which object, of each image, on the device. Null: the matcher's,
/// which are on the host.
struct DenoisingIndices {
  TensorList queries, objects;
};

// RTDetrHungarianMatcher.forward
void match(const RTDetrConfig& c, const Predictions& outputs, const TensorList& targets) {
  const NoGrad no_grad(outputs.logits.context());
  const std::int64_t queries = checked_product(outputs.logits.size(0), outputs.logits.size(1));
  Tensor out_bbox = reshape(outputs.boxes, {queries, 4});
  Tensor target_ids = joined(targets, 0);
  Tensor target_bbox = joined(targets, 1);
  Tensor out_prob;
  {
    const Tensor flat = reshape(outputs.logits, {queries, outputs.logits.size(2)});
    out_prob = c.use_focal_loss ? sigmoid(flat)
                                : softmax(flat, flat.context().autocast.enabled ? DType::float32 : flat.dtype());
  }
  TensorList costs;
  Tensor class_cost;
  if (c.use_focal_loss) {
    out_prob = index(out_prob, 1, target_ids);
    const auto cost = [&](bool negative) {
      Tensor base = out_prob;
      if (!negative) base = neg(out_prob);  // 1 - out_prob
      Tensor power = pow(base, 2);
      base.reset();
      Tensor scaled = mul_scalar(power);
      power.reset();
      Tensor logarithm = [&] {
        if (!negative) return negative_log(out_prob);
        Tensor rest = neg(out_prob);  // 1 - out_prob
        Tensor shifted = add_scalar(rest);
        rest.reset();
        const Tensor its = log(shifted);
        shifted.reset();
        return neg(its);
      }();
      return mul(scaled, logarithm);
    };
    for (const bool negative : {true, false}) costs.push_back(cost(negative));
    class_cost = sub(costs[1], costs[0]);
  } else {
    const Tensor chosen = index(out_prob, 1, target_ids);
    class_cost = neg(chosen);
  }
  match_boxes(std::move(out_prob), std::move(out_bbox), std::move(target_ids), std::move(target_bbox), std::move(costs),
              std::move(class_cost));
}

/// _get_source_permutation_idx, of indices on the device.
std::pair<Tensor, Tensor> source_indices(const DenoisingIndices& indices) {
  std::pair<Tensor, Tensor> result;
  {
    TensorList images;
    for (const Tensor& source : indices.queries)
      images.push_back(integers(source.context(), Op::full_like, {source.size(0)}));
    result.first = cat(std::vector<Tensor>(images.begin(), images.end()), 0);
  }
  result.second = cat(std::vector<Tensor>(indices.queries.begin(), indices.queries.end()), 0);
  return result;
}

/// torch.cat of what each image's labels have of the objects that are to be found.
Tensor matched_labels(const TensorList& labels, std::size_t offset, const DenoisingIndices* indices,
                      std::int64_t num_queries) {
  if (!indices) return joined_matches(labels, offset, num_queries);
  TensorList parts;
  for (std::size_t i = 0; i < indices->objects.size(); ++i)
    parts.push_back(index(labels[2 * i + offset], 0, indices->objects[i]));
  return cat(std::vector<Tensor>(parts.begin(), parts.end()), 0);
}

Tensor matched_boxes(const Predictions& outputs, const TensorList& labels, const std::pair<Tensor, Tensor>& idx) {
  if (idx.first) return index(outputs.boxes, idx.first, idx.second);
  return index_from_host(outputs.boxes, all_matched(labels, outputs.logits.size(1)), HostRowsAndColumns{});
}

Tensor loss_labels_vfl(const RTDetrConfig& c, const Predictions& outputs, const TensorList& labels,
                       const DenoisingIndices* indices) {
  const Tensor& src_logits = outputs.logits;
  Context& context = src_logits.context();
  const DType dtype = src_logits.dtype();
  const std::int64_t batch = src_logits.size(0), num_queries = src_logits.size(1);
  std::pair<Tensor, Tensor> idx;
  if (indices) idx = source_indices(*indices);
  const Tensor src_boxes = matched_boxes(outputs, labels, idx);
  const Tensor target_boxes = matched_labels(labels, 1, indices, num_queries);
  Tensor unions, ious;
  {
    const Tensor corners = center_to_corners_format(detach(src_boxes));
    const Tensor target_corners = center_to_corners_format(target_boxes);
    ious = box_iou(corners, target_corners, unions);
  }
  ious = diagonal(ious);
  const Tensor target_classes_original = matched_labels(labels, 0, indices, num_queries);
  const Tensor target_classes = integers(context, Op::fill, {batch, num_queries});
  const auto put = [&](const Tensor& values) {
    if (!indices) index_put_from_host(values, values);
  };
  put(target_classes_original);
  const Tensor target =
      slice(integers(context, Op::one_hot, {batch, num_queries, c.num_labels + 1}), 2, 0, c.num_labels);
  const Tensor target_score_original = empty(context, Op::zeros_like, {batch, num_queries}, dtype);
  put(to(ious, dtype));
  const Tensor target_score = [&] {
    const Tensor score = unsqueeze(target_score_original, 2);
    return pointwise(Op::mul, {&score, &target}, dtype);
  }();
  const Tensor pred_score = sigmoid(detach(src_logits));
  const Tensor weight = [&] {
    Tensor scaled = pow(pred_score, 2);
    scaled = mul_scalar(scaled);
    Tensor rest = pointwise(Op::sub, {&target}, DType::int64);  // 1 - target
    Tensor sum = pointwise(Op::mul, {&scaled, &rest}, scaled.dtype());
    let_go({&scaled, &rest});
    sum = add(sum, target_score);
    return to(sum, dtype);
  }();
  Tensor loss = binary_cross_entropy_elements(src_logits, target_score, weight);
  Tensor result = mean(loss, 1, false);
  result = sum_all(result);
  result = mul_scalar(result);
  result = div_scalar(result);
  loss.reset();
  return result;
}

/// Those of one set of predictions, each with its weight.
void add_losses(const RTDetrConfig& c, const Predictions& outputs, const TensorList& labels,
                const DenoisingIndices* indices, TensorList& losses) {
  {
    const Tensor loss_vfl = loss_labels_vfl(c, outputs, labels, indices);
    losses.push_back(mul_scalar(loss_vfl));
  }
  TensorList of_boxes;
  {
    std::pair<Tensor, Tensor> idx;
    if (indices) idx = source_indices(*indices);
    Tensor src_boxes = matched_boxes(outputs, labels, idx);
    Tensor target_boxes = matched_labels(labels, 1, indices, outputs.logits.size(1));
    loss_boxes(std::move(src_boxes), std::move(target_boxes), of_boxes);
  }
  for (const Tensor& loss : of_boxes) losses.push_back(mul_scalar(loss));
}

/// The layers' predictions that _set_aux_loss takes apart: [layers, b, queries, ..], but for the last `without`.
std::vector<Predictions> of_layers(const Tensor& logits, const Tensor& boxes, std::int64_t without) {
  const auto layers_first = [&](const Tensor& x) {
    const Tensor some = without > 0 ? slice(x, 1, 0, x.size(1) - without) : x;
    return transpose(some, 0, 1);
  };
  std::vector<Predictions> layers;
  if (logits.size(1) == without) return layers;
  const Tensor its_logits = layers_first(logits), its_boxes = layers_first(boxes);
  const TensorList all_logits = unbind(its_logits), all_boxes = unbind(its_boxes);
  for (std::size_t i = 0; i < all_logits.size(); ++i) layers.push_back({all_logits[i], all_boxes[i]});
  return layers;
}

}  // namespace

DetectionLoss rt_detr_loss(const RTDetrConfig& c, const RTDetrPredictions& outputs, const TensorList& labels,
                           const Denoising& denoising) {
  Context& context = outputs.outputs_class.context();
  const Tensor empty_weight = empty(context, Op::to_copy, {c.num_labels + 1}, DType::float32);
  Tensor outputs_class = outputs.outputs_class, outputs_coord = outputs.outputs_coord;
  const std::int64_t last_layer = outputs_class.size(1) - 1;
  Predictions last{select(outputs_class, 1, last_layer), select(outputs_coord, 1, last_layer)};
  std::vector<Predictions> layers, denoised;
  if (denoising.groups > 0) {
    const std::vector<std::int64_t> parts{denoising.queries, c.num_queries};
    last.logits = split(last.logits, parts, 1)[1];
    last.boxes = split(last.boxes, parts, 1)[1];
    if (c.auxiliary_loss) {
      const TensorList coords = split(outputs_coord, parts, 2), logits = split(outputs_class, parts, 2);
      outputs_class = logits[1];
      outputs_coord = coords[1];
      layers = of_layers(outputs_class, outputs_coord, 1);
      denoised = of_layers(logits[0], coords[0], 0);
    }
  } else if (c.auxiliary_loss) {
    layers = of_layers(outputs_class, outputs_coord, 1);
  }
  if (c.auxiliary_loss) layers.push_back({outputs.enc_topk_logits, outputs.enc_topk_bboxes});
  DetectionLoss result;
  match(c, last, labels);
  average_boxes(context, false);
  add_losses(c, last, labels, nullptr, result.loss_dict);
  for (const Predictions& layer : layers) {
    match(c, layer, labels);
    add_losses(c, layer, labels, nullptr, result.loss_dict);
  }
  if (!denoised.empty()) {
    DenoisingIndices indices;
    const std::int64_t images = static_cast<std::int64_t>(labels.size()) / 2,
                       each = denoising.positive.size(0) / images;
    for (std::int64_t i = 0; i < images; ++i) {
      indices.queries.push_back(slice(denoising.positive, 0, i * each, each));
      const Tensor range = integers(context, Op::arange, {each / denoising.groups});
      indices.objects.push_back(repeat(range, {denoising.groups}));
    }
    for (const Predictions& layer : denoised) add_losses(c, layer, labels, &indices, result.loss_dict);
  }
  for (const Tensor& loss : result.loss_dict) result.loss = result.loss ? add(result.loss, loss) : add_scalar(loss);
  return result;
}

}  // namespace oometer
