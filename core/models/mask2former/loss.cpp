#include <algorithm>
#include <utility>

#include "models/mask2former/mask2former.h"
#include "ops/detection.h"
#include "ops/grid_sample.h"
#include "ops/host_index.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/topk.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// The smaller of objects and predictions of an image: as many are matched.
std::int64_t matched(const Tensor& class_labels, std::int64_t queries) {
  return std::min(class_labels.size(0), queries);
}

/// What autocast makes of the two that grid_sample reads, which are not alike.
Tensor sampled(const Tensor& features, const Tensor& grid) {
  if (features.dtype() == grid.dtype()) return grid_sample(features, grid);
  const Tensor widest = to(features, grid.dtype());
  return grid_sample(widest, grid);
}

/// sample_point(masks[:, None], points, align_corners=False): [masks, 1, points].
Tensor sample_point(const Tensor& masks, const Tensor& point_coordinates) {
  Tensor point_features = [&] {
    const Tensor grid = [&] {
      Tensor scaled = mul_scalar(unsqueeze(point_coordinates, 2));
      return add_scalar(scaled);  // - 1
    }();
    return sampled(unsqueeze(masks, 1), grid);
  }();
  return view(point_features, {masks.size(0), 1, point_coordinates.size(1)});
}

Tensor random_points(Context& context, std::int64_t masks, std::int64_t points) {
  return empty(context, Op::bernoulli, {masks, points, 2}, DType::float32);  // torch.rand
}

/// Without the dimension of one.
Tensor flat(const Tensor& x) { return view(x, {x.size(0), x.size(2)}); }

/// torch.matmul(x, labels.T), or what autocast makes of it.
Tensor by_labels(const Tensor& x, const Tensor& labels) { return matmul(x, transpose(labels, 0, 1)); }

Tensor pair_wise_sigmoid_cross_entropy_loss(const Tensor& inputs, const Tensor& labels) {
  const auto against = [&](Op op) {
    const Tensor target = empty_like(op, inputs);
    return binary_cross_entropy_elements(inputs, target);
  };
  Tensor cross_entropy_loss_pos = against(Op::ones_like);
  Tensor cross_entropy_loss_neg = against(Op::zeros_like);
  Tensor loss_pos = [&] {
    const Tensor average = div_scalar(cross_entropy_loss_pos);
    return by_labels(average, labels);
  }();
  Tensor loss_neg = [&] {
    const Tensor average = div_scalar(cross_entropy_loss_neg);
    const Tensor others = neg(labels);  // 1 - labels
    return by_labels(average, others);
  }();
  Tensor loss = add(loss_pos, loss_neg);
  let_go({&cross_entropy_loss_pos, &cross_entropy_loss_neg, &loss_pos, &loss_neg});
  return loss;
}

/// 1 - (numerator + 1) / (denominator + 1)
Tensor dice(const Tensor& numerator, const Tensor& denominator) {
  Tensor quotient = [&] {
    const Tensor above = add_scalar(numerator);
    const Tensor below = add_scalar(denominator);
    return div(above, below);
  }();
  return neg(quotient);
}

Tensor sum_of_rows(const Tensor& x) { return sum(autocast_float32(x), std::vector<int>{-1}, false); }

Tensor pair_wise_dice_loss(const Tensor& argument, const Tensor& labels) {
  Tensor inputs = sigmoid(argument);
  Tensor numerator = by_labels(inputs, labels);
  numerator = mul_scalar(numerator);
  Tensor denominator = [&] {
    const Tensor of_inputs = sum_of_rows(inputs);
    const Tensor of_labels = sum_of_rows(labels);
    return add(unsqueeze(of_inputs, 1), unsqueeze(of_labels, 0));
  }();
  Tensor loss = dice(numerator, denominator);
  let_go({&inputs, &numerator, &denominator});
  return loss;
}

// Mask2FormerHungarianMatcher.forward. What it finds is in host memory.
void match(const Mask2FormerConfig& c, const MaskPredictions& outputs, const TensorList& labels) {
  Context& context = outputs.masks_queries_logits.context();
  const NoGrad no_grad(context);
  Tensor pred_probs, pred_mask, cost_class, target_mask, point_coordinates, target_coordinates, pred_coordinates,
      cost_mask, cost_dice, cost_matrix;
  for (std::size_t i = 0; 2 * i < labels.size(); ++i) {
    const auto image = static_cast<std::int64_t>(i);
    {
      const Tensor logits = select(outputs.class_queries_logits, 0, image);
      pred_probs = softmax(logits, context.autocast.enabled ? DType::float32 : logits.dtype());
    }
    pred_mask = select(outputs.masks_queries_logits, 0, image);
    {
      const Tensor of_labels = index(pred_probs, 1, labels[2 * i]);
      cost_class = neg(of_labels);
    }
    target_mask = to(labels[2 * i + 1], pred_mask.dtype());
    point_coordinates = random_points(context, 1, c.train_num_points);
    target_coordinates = repeat(point_coordinates, {target_mask.size(0), 1, 1});
    target_mask = flat(sample_point(target_mask, target_coordinates));
    pred_coordinates = repeat(point_coordinates, {pred_mask.size(0), 1, 1});
    pred_mask = flat(sample_point(pred_mask, pred_coordinates));
    cost_mask = pair_wise_sigmoid_cross_entropy_loss(pred_mask, target_mask);
    cost_dice = pair_wise_dice_loss(pred_mask, target_mask);
    {
      Tensor weighted = mul_scalar(cost_mask);
      Tensor of_class = mul_scalar(cost_class);
      Tensor both = add(weighted, of_class);
      let_go({&weighted, &of_class});
      Tensor of_dice = mul_scalar(cost_dice);
      cost_matrix = add(both, of_dice);
    }
    cost_matrix = empty_like(Op::where, cost_matrix);  // nan_to_num
  }
  let_go({&pred_probs, &pred_mask, &cost_class, &target_mask, &point_coordinates, &target_coordinates,
          &pred_coordinates, &cost_mask, &cost_dice, &cost_matrix});
}

/// get_num_masks
Tensor number_of_masks(Context& context) {
  const auto number = [&](Op op) { return empty(context, op, {}, DType::float32); };
  const Tensor count = number(Op::to_copy);
  const Tensor quotient = number(Op::div);
  return number(Op::clamp);
}

/// sample_points_using_uncertainty
Tensor sample_uncertain_points(const Mask2FormerConfig& c, const Tensor& logits) {
  Context& context = logits.context();
  const std::int64_t masks = logits.size(0);
  Tensor point_coordinates = random_points(context, masks, c.sampled_points);
  Tensor point_logits = sample_point(logits, point_coordinates);
  Tensor point_uncertainties = [&] {
    const Tensor distance = abs(point_logits);
    return neg(distance);
  }();
  Tensor idx = topk_of_rows(flat(point_uncertainties), c.uncertain_points).indices;
  Tensor shift = [&] {
    const Tensor range = integers(context, Op::arange, {masks});
    return integers(context, Op::mul, {masks});
  }();
  point_coordinates = empty(context, Op::index, {masks, c.uncertain_points, 2}, DType::float32);
  if (c.train_num_points > c.uncertain_points) {
    const Tensor random = random_points(context, masks, c.train_num_points - c.uncertain_points);
    point_coordinates = cat({point_coordinates, random}, 1);
  }
  let_go({&point_logits, &point_uncertainties, &idx, &shift});
  return point_coordinates;
}

/// sigmoid_cross_entropy_loss
Tensor mask_loss(const Tensor& inputs, const Tensor& labels, const Tensor& num_masks) {
  Tensor cross_entropy_loss = binary_cross_entropy_elements(inputs, labels);
  Tensor loss = [&] {
    const Tensor total = [&] {
      const Tensor average = mean(cross_entropy_loss, 1, false);
      return sum_all(average);
    }();
    return div(total, num_masks);
  }();
  cross_entropy_loss.reset();
  return loss;
}

Tensor dice_loss(const Tensor& inputs, const Tensor& labels, const Tensor& num_masks) {
  Tensor probs = sigmoid(inputs);
  Tensor numerator = [&] {
    Tensor total = [&] {
      const Tensor product = mul(probs, labels);
      return sum_of_rows(product);
    }();
    return mul_scalar(total);
  }();
  Tensor denominator = [&] {
    const Tensor of_probs = sum_of_rows(probs);
    const Tensor of_labels = sum_of_rows(labels);
    return add(of_probs, of_labels);
  }();
  Tensor loss = dice(numerator, denominator);
  {
    const Tensor total = sum_all(loss);
    loss = div(total, num_masks);
  }
  let_go({&probs, &numerator, &denominator});
  return loss;
}

/// _pad_images_to_max_in_batch: the masks of all images, and where they are padded.
Tensor padded_targets(const TensorList& labels, Tensor& padding_masks) {
  const Tensor& first = labels[1];
  Context& context = first.context();
  const auto images = static_cast<std::int64_t>(labels.size() / 2);
  const Tensor padded_tensors =
      empty(context, Op::zeros, {images, first.size(0), first.size(1), first.size(2)}, first.dtype());
  padding_masks = empty(context, Op::ones_like, {images, first.size(1), first.size(2)}, DType::boolean);
  return padded_tensors;
}

void loss_masks(const Mask2FormerConfig& c, const Tensor& masks_queries_logits, const TensorList& labels,
                const Tensor& num_masks, TensorList& losses) {
  Context& context = masks_queries_logits.context();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < labels.size(); i += 2) count += matched(labels[i], masks_queries_logits.size(1));
  Tensor pred_masks = index_from_host(masks_queries_logits, count, HostRowsAndColumns{});
  Tensor padding_masks;
  Tensor target_masks = padded_targets(labels, padding_masks);
  target_masks = index_from_host(target_masks, count, HostRowsAndColumns{});
  Tensor point_coordinates, point_labels;
  {
    const NoGrad no_grad(context);
    point_coordinates = sample_uncertain_points(c, pred_masks);
    point_labels = flat(sample_point(target_masks, point_coordinates));
  }
  Tensor point_logits = flat(sample_point(pred_masks, point_coordinates));
  losses.push_back(mask_loss(point_logits, point_labels, num_masks));
  losses.push_back(dice_loss(point_logits, point_labels, num_masks));
  let_go({&pred_masks, &target_masks, &padding_masks, &point_coordinates, &point_labels, &point_logits});
}

Tensor loss_labels(const Tensor& pred_logits, const TensorList& labels, const Tensor& empty_weight) {
  const std::int64_t queries = pred_logits.size(1);
  Tensor target_classes_o = joined_matches(labels, 0, queries);
  Tensor target_classes = integers(pred_logits.context(), Op::fill, {pred_logits.size(0), queries});
  index_put_from_host(target_classes, target_classes_o);
  Tensor loss = weighted_cross_entropy(transpose(pred_logits, 1, 2), target_classes, empty_weight);
  let_go({&target_classes_o, &target_classes});
  return loss;
}

}  // namespace

DetectionLoss mask2former_loss(const Mask2FormerConfig& c, const List<MaskPredictions>& layers,
                               const TensorList& labels, const Tensor& empty_weight) {
  Context& context = empty_weight.context();
  DetectionLoss result;
  TensorList numbers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    // The last layer's first.
    const MaskPredictions& outputs = layers[i == 0 ? layers.size() - 1 : i - 1];
    match(c, outputs, labels);
    numbers.push_back(number_of_masks(context));
    loss_masks(c, outputs.masks_queries_logits, labels, numbers.back(), result.loss_dict);
    result.loss_dict.push_back(loss_labels(outputs.class_queries_logits, labels, empty_weight));
    if (i > 0) numbers.pop_back();
  }
  numbers.clear();
  // get_loss_dict: `loss *= weight`, by the names of losses
  for (const std::size_t kind : {std::size_t{2}, std::size_t{0}, std::size_t{1}})
    for (std::size_t i = kind; i < result.loss_dict.size(); i += 3)
      result.loss_dict[i] = mul_scalar_(result.loss_dict[i]);
  for (const Tensor& loss : result.loss_dict) result.loss = result.loss ? add(result.loss, loss) : add_scalar(loss);
  return result;
}

}  // namespace oometer
