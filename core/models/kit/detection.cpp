#include "models/kit/detection.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "config/reader.h"
#include "models/kit/image_size.h"
#include "models/sizes.h"
#include "nn/activation.h"
#include "ops/detection.h"
#include "ops/host_index.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

void read_detection_images(ConfigReader& reader, bool has_labels, std::pair<std::int64_t, std::int64_t> usual,
                           DataConfig& data) {
  if (has_labels) data.target_length = reader.integer("objects_per_image", kUsualObjects, {1, 65'536});
  if (const auto size = read_image_size(reader, data, usual)) std::tie(data.image_height, data.image_width) = *size;
}

void ignore_loss_weights(ConfigReader& reader) {
  reader.ignore({"class_cost", "bbox_cost", "giou_cost", "mask_loss_coefficient", "dice_loss_coefficient",
                 "bbox_loss_coefficient", "giou_loss_coefficient", "eos_coefficient", "cls_loss_coefficient",
                 "focal_alpha"});
}

void set_detection_traits(ModelTraits& t) {
  t.image_size = 0;  // any
  t.image_keys = {"image_size", "objects_per_image"};
  t.has_loss = true;
  t.losses = {};
  t.precisions = {Precision::fp32, Precision::amp_bf16, Precision::amp_fp16};
  t.precisions_why = "the matcher's torch.cdist has no kernel for halves, so it wants float32 or autocast";
}

double largest_tensor_of_detection(const DataConfig& data, std::int64_t queries, std::int64_t labels) {
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1),
                     objects = checked_product(images, std::max<std::int64_t>(data.target_length, 1));
  return std::max({bytes_of({images, queries, objects, 2}), bytes_of({objects, objects, 2}),
                   bytes_of({images, queries, labels + 1})});
}

TensorList make_detection_labels(Context& context, const DataConfig& data) {
  TensorList labels;
  for (std::int64_t i = 0; i < data.images(); ++i) {
    labels.push_back(empty(context, Op::input, {data.target_length}, DType::int64, Role::input));
    labels.push_back(empty(context, Op::input, {data.target_length, 4}, DType::float32, Role::input));
  }
  return labels;
}

DetectionHead::DetectionHead(const Builder& builder, std::int64_t input_dim, std::int64_t hidden_dim,
                             std::int64_t output_dim, std::int64_t num_layers)
    : module(builder.module) {
  for (std::int64_t i = 0; i < num_layers; ++i)
    layers.emplace_back(builder.child("layers", "Linear", static_cast<std::int32_t>(i)),
                        i == 0 ? input_dim : hidden_dim, i + 1 == num_layers ? output_dim : hidden_dim, true);
}

Tensor DetectionHead::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor x = call.argument(argument);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = layers[i](x);
    if (i + 1 < layers.size()) x = relu(x);
  }
  return call.result(x);
}

void let_go(std::initializer_list<Tensor*> locals) {
  for (Tensor* local : locals) local->reset();
}

Tensor inverse_sigmoid(const Tensor& given) {
  const Tensor x = clamp(given, true);
  const Tensor x1 = clamp(x, false);
  const Tensor x2 = [&] {
    const Tensor rest = neg(x);  // 1 - x
    return clamp(rest, false);
  }();
  const Tensor ratio = div(x1, x2);
  return log(ratio);
}

namespace {

Tensor upcast(const Tensor& x) { return to(x, DType::float32); }

Tensor box_area(const Tensor& argument) {
  const Tensor boxes = upcast(argument);
  const auto side = [&](std::int64_t axis) {
    const Tensor end = select(boxes, 1, axis + 2), begin = select(boxes, 1, axis);
    return sub(end, begin);
  };
  const Tensor width = side(0);
  const Tensor height = side(1);
  return mul(width, height);
}

/// `if not (boxes[:, 2:] >= boxes[:, :2]).all()`
void check_boxes(const Tensor& boxes) {
  const NoGrad no_grad(boxes.context());
  Tensor result;
  {
    const Tensor left = slice(boxes, 1, 0, 2), right = slice(boxes, 1, 2, 2);
    Tensor is_greater = pointwise(Op::ge, {&right, &left}, DType::boolean);
    result = all(Op::all, is_greater, {0, 1}, false);
    is_greater.reset();
  }
}

/// The corners of the boxes in which each two lie, or of those that they share: `top_left` and `bottom_right`, and the
/// area between them.
struct Extent {
  Extent(const Tensor& boxes1, const Tensor& boxes2, bool shared) {
    const auto corner = [&](Op op, std::int64_t begin) {
      const Tensor first = slice(unsqueeze(boxes1, 1), 2, begin, 2), second = slice(boxes2, 1, begin, 2);
      return maximum(op, first, second);
    };
    top_left = corner(shared ? Op::maximum : Op::minimum, 0);
    bottom_right = corner(shared ? Op::minimum : Op::maximum, 2);
    width_height = sub(bottom_right, top_left);
    width_height = clamp(width_height, false);
    const Tensor width = select(width_height, 2, 0), height = select(width_height, 2, 1);
    area = mul(width, height);
  }

  Tensor top_left, bottom_right, width_height, area;
};

}  // namespace

Tensor box_iou(const Tensor& boxes1, const Tensor& boxes2, Tensor& union_) {
  Tensor area1 = box_area(boxes1);
  Tensor area2 = box_area(boxes2);
  Extent inter(boxes1, boxes2, true);
  {
    const Tensor both = add(unsqueeze(area1, 1), area2);
    union_ = sub(both, inter.area);
  }
  Tensor iou = div(inter.area, union_);
  let_go({&area1, &area2, &inter.top_left, &inter.bottom_right, &inter.width_height, &inter.area});
  return iou;
}

namespace {

/// Objects of an image for which a prediction is left.
std::int64_t matched(const Tensor& class_labels, std::int64_t num_queries) {
  return std::min(class_labels.size(0), num_queries);
}

}  // namespace

std::int64_t all_matched(const TensorList& labels, std::int64_t num_queries) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < labels.size(); i += 2) count += matched(labels[i], num_queries);
  return count;
}

Tensor joined(const TensorList& labels, std::size_t offset) {
  std::vector<Tensor> parts;
  for (std::size_t i = offset; i < labels.size(); i += 2) parts.push_back(labels[i]);
  return cat(parts, 0);
}

Tensor joined_matches(const TensorList& labels, std::size_t offset, std::int64_t num_queries) {
  TensorList parts;
  for (std::size_t i = 0; i < labels.size(); i += 2)
    parts.push_back(index_from_host(labels[i + offset], matched(labels[i], num_queries)));
  return cat(parts, 0);
}

Tensor negative_log(const Tensor& x) {
  Tensor shifted = add_scalar(x);
  Tensor logarithm = log(shifted);
  shifted.reset();
  return neg(logarithm);
}

namespace {

/// `weight * x**gamma * -(other + 1e-8).log()`; null `other`: 1 - x, made where it is asked for.
Tensor focal_cost(Tensor x, const Tensor& other) {
  Tensor scaled = pow(x, 2);
  x.reset();
  scaled = mul_scalar(scaled);
  const Tensor cost = negative_log(other);
  return mul(scaled, cost);
}

/// DeformableDetrHungarianMatcher: pos_cost_class[:, target_ids] - neg_cost_class[:, target_ids]
Tensor focal_class_cost(const Tensor& out_prob, const Tensor& target_ids, Tensor& neg_cost_class,
                        Tensor& pos_cost_class) {
  {
    Tensor power = pow(out_prob, 2);
    Tensor scaled = mul_scalar(power);
    power.reset();
    const Tensor cost = [&] {
      Tensor rest = neg(out_prob);  // 1 - out_prob
      Tensor shifted = add_scalar(rest);
      rest.reset();
      Tensor logarithm = log(shifted);
      shifted.reset();
      return neg(logarithm);
    }();
    neg_cost_class = mul(scaled, cost);
    scaled.reset();
  }
  pos_cost_class = focal_cost(neg(out_prob), out_prob);
  Tensor positive = index(pos_cost_class, 1, target_ids), negative = index(neg_cost_class, 1, target_ids);
  Tensor result = sub(positive, negative);
  let_go({&positive, &negative});
  return result;
}

// HungarianMatcher.forward. What it finds is in host memory.
void match(const Predictions& outputs, const TensorList& targets, ClassLoss class_loss) {
  const NoGrad no_grad(outputs.logits.context());
  const std::int64_t queries = checked_product(outputs.logits.size(0), outputs.logits.size(1));
  const bool focal = class_loss == ClassLoss::focal;
  const Tensor flat = reshape(outputs.logits, {queries, outputs.logits.size(2)});
  Tensor out_prob =
      focal ? sigmoid(flat) : softmax(flat, flat.context().autocast.enabled ? DType::float32 : flat.dtype());
  Tensor out_bbox = reshape(outputs.boxes, {queries, 4});
  Tensor target_ids = joined(targets, 0);
  Tensor target_bbox = joined(targets, 1);
  TensorList class_costs(focal ? 2 : 0);
  Tensor class_cost;
  if (focal) {
    class_cost = focal_class_cost(out_prob, target_ids, class_costs[0], class_costs[1]);
  } else {
    class_cost = index(out_prob, 1, target_ids);
    class_cost = neg(class_cost);
  }
  match_boxes(std::move(out_prob), std::move(out_bbox), std::move(target_ids), std::move(target_bbox),
              std::move(class_costs), std::move(class_cost));
}

}  // namespace

void match_boxes(Tensor out_prob, Tensor out_bbox, Tensor target_ids, Tensor target_bbox, TensorList class_costs,
                 Tensor class_cost) {
  Tensor bbox_cost = cdist(out_bbox, target_bbox);
  Tensor giou_cost = [&] {
    Tensor corners = center_to_corners_format(out_bbox);
    Tensor target_corners = center_to_corners_format(target_bbox);
    return generalized_box_iou(std::move(corners), std::move(target_corners));
  }();
  giou_cost = neg(giou_cost);
  Tensor cost_matrix = [&] {
    Tensor weighted = mul_scalar(bbox_cost);
    Tensor of_class = mul_scalar(class_cost);
    Tensor sum = add(weighted, of_class);
    let_go({&weighted, &of_class});
    Tensor of_giou = mul_scalar(giou_cost);
    Tensor result = add(sum, of_giou);
    let_go({&sum, &of_giou});
    return result;
  }();
  cost_matrix = empty_like(Op::where, cost_matrix);  // nan_to_num
  cost_matrix.reset();                               // on the host from now on
  let_go({&out_prob, &out_bbox, &target_ids, &target_bbox});
  for (Tensor& cost : class_costs) cost.reset();
  let_go({&class_cost, &bbox_cost, &giou_cost});
}

void average_boxes(Context& context, bool of_all_ranks) {
  const auto number = [&](Op op) { return empty(context, op, {1}, DType::float32); };
  const Tensor num_boxes = number(Op::to_copy);
  Tensor quotient;
  if (of_all_ranks) quotient = number(Op::div);
  const Tensor at_least_one = number(Op::clamp);
  quotient.reset();
}

namespace {

/// DeformableDetrImageLoss.loss_labels, behind its target_classes: sigmoid_focal_loss(...) * num_queries
Tensor focal_loss_labels(const Tensor& inputs) {
  Context& context = inputs.context();
  const std::int64_t classes = inputs.size(2);
  const Tensor onehot = empty(context, Op::zeros, {inputs.size(0), inputs.size(1), classes + 1}, inputs.dtype()),
               targets = slice(onehot, 2, 0, classes);
  Tensor loss;
  {
    const Tensor prob = sigmoid(inputs);
    const Tensor ce_loss = binary_cross_entropy_elements(inputs, targets);
    Tensor p_t;
    {
      Tensor hits = mul(prob, targets);
      Tensor misses;
      {
        const Tensor rest = neg(prob);  // 1 - prob
        Tensor others = neg(targets);
        misses = mul(rest, others);
      }
      p_t = add(hits, misses);
      let_go({&hits, &misses});
    }
    {
      Tensor rest = neg(p_t);
      const Tensor factor = pow(rest, 2);
      rest.reset();
      loss = mul(ce_loss, factor);
    }
    Tensor alpha_t;
    {
      Tensor positive = mul_scalar(targets);
      Tensor others = neg(targets);
      Tensor negative = mul_scalar(others);
      others.reset();
      alpha_t = add(positive, negative);
      let_go({&positive, &negative});
    }
    loss = mul(alpha_t, loss);
    {
      Tensor average = mean(loss, 1, false);
      Tensor sum = sum_all(average);
      average.reset();
      const Tensor quotient = div_scalar(sum);
      sum.reset();
      let_go({&p_t});
      loss = quotient;
    }
  }
  return mul_scalar(loss);
}

Tensor loss_labels(const Predictions& outputs, const TensorList& targets, const Tensor& empty_weight) {
  const std::int64_t num_queries = outputs.logits.size(1);
  const Tensor target_classes_o = joined_matches(targets, 0, num_queries);
  const Tensor target_classes =
      empty(outputs.logits.context(), Op::fill, {outputs.logits.size(0), num_queries}, DType::int64);
  index_put_from_host(target_classes, target_classes_o);
  if (!empty_weight) return focal_loss_labels(outputs.logits);
  return weighted_cross_entropy(transpose(outputs.logits, 1, 2), target_classes, empty_weight);
}

}  // namespace

void loss_boxes(Tensor source_boxes, Tensor target_boxes, TensorList& losses) {
  Tensor loss_bbox = l1_loss_elements(source_boxes, target_boxes);
  {
    const Tensor sum = sum_all(loss_bbox);
    losses.push_back(div_scalar(sum));
  }
  Tensor loss_giou = [&] {
    Tensor corners = center_to_corners_format(source_boxes);
    Tensor target_corners = center_to_corners_format(target_boxes);
    const Tensor giou = generalized_box_iou(std::move(corners), std::move(target_corners));
    return diagonal(giou);
  }();
  loss_giou = neg(loss_giou);  // 1 - it
  {
    const Tensor sum = sum_all(loss_giou);
    losses.push_back(div_scalar(sum));
  }
  let_go({&source_boxes, &target_boxes, &loss_bbox, &loss_giou});
}

namespace {

Tensor loss_cardinality(const Predictions& outputs, bool focal) {
  const Tensor& logits = outputs.logits;
  Context& context = logits.context();
  const NoGrad no_grad(context);
  const auto numbers = [&](Op op, DType dtype) { return empty(context, op, {logits.size(0)}, dtype); };
  Tensor target_lengths = numbers(Op::to_copy, DType::int64);
  Tensor card_pred;
  {
    Tensor classes;
    if (focal) {
      Tensor scores = sigmoid(logits);
      TensorList largest = max(scores, 2, false);
      scores.reset();
      classes = largest[0];
    } else {
      classes = empty(context, Op::argmax, {logits.size(0), logits.size(1)}, DType::int64);
    }
    const Tensor is_object = pointwise(focal ? Op::gt : Op::ne, {&classes}, DType::boolean);
    classes.reset();
    card_pred = sum(is_object, std::vector<int>{1}, false);
  }
  Tensor card_err;
  {
    Tensor predicted = numbers(Op::to_copy, DType::float32);
    Tensor lengths = numbers(Op::to_copy, DType::float32);
    {
      Tensor difference = numbers(Op::sub, DType::float32);
      Tensor elements = numbers(Op::abs, DType::float32);
      card_err = mean_all(elements);
      let_go({&elements, &difference});
    }
    let_go({&predicted, &lengths});
  }
  let_go({&target_lengths, &card_pred});
  return card_err;
}

/// `empty_weight`: null for a focal loss. Those of one layer: loss_ce, loss_bbox, loss_giou, cardinality_error.
TensorList losses_of(const Predictions& outputs, const TensorList& targets, const Tensor& empty_weight) {
  TensorList losses;
  losses.push_back(loss_labels(outputs, targets, empty_weight));
  const std::int64_t num_queries = outputs.logits.size(1);
  Tensor source_boxes = index_from_host(outputs.boxes, all_matched(targets, num_queries), HostRowsAndColumns{});
  Tensor target_boxes = joined_matches(targets, 1, num_queries);
  loss_boxes(std::move(source_boxes), std::move(target_boxes), losses);
  losses.push_back(loss_cardinality(outputs, !empty_weight));
  return losses;
}

}  // namespace

Tensor center_to_corners_format(const Tensor& boxes) {
  TensorList corners;
  {
    const TensorList parts = unbind(boxes, boxes.ndim() - 1);  // center_x, center_y, width, height
    for (const bool adds : {false, true})
      for (std::size_t i = 0; i < 2; ++i) {
        const Tensor half = mul_scalar(parts[i + 2]);
        corners.push_back(adds ? add(parts[i], half) : sub(parts[i], half));
      }
  }
  return stack(corners, boxes.ndim() - 1);
}

Tensor generalized_box_iou(Tensor boxes1, Tensor boxes2) {
  check_boxes(boxes1);
  check_boxes(boxes2);
  Tensor union_;
  Tensor iou = box_iou(boxes1, boxes2, union_);
  Extent hull(boxes1, boxes2, false);
  Tensor result;
  {
    Tensor ratio = [&] {
      const Tensor rest = sub(hull.area, union_);
      return div(rest, hull.area);
    }();
    result = sub(iou, ratio);
  }
  let_go({&boxes1, &boxes2, &iou, &union_, &hull.top_left, &hull.bottom_right, &hull.width_height, &hull.area});
  return result;
}

DetectionLoss object_detection_loss(const Predictions& last, const TensorList& labels, std::int64_t num_labels,
                                    const Predictions& intermediate, ClassLoss class_loss) {
  Context& context = last.logits.context();
  Tensor empty_weight;
  if (class_loss == ClassLoss::cross_entropy)
    empty_weight = empty(context, Op::to_copy, {num_labels + 1}, DType::float32);
  DetectionLoss result;
  TensorList logits, boxes;
  if (intermediate.logits) {
    const auto layers_of = [](const Tensor& stacked) { return unbind(slice(stacked, 0, 0, stacked.size(0) - 1)); };
    logits = layers_of(intermediate.logits);
    boxes = layers_of(intermediate.boxes);
  }
  match(last, labels, class_loss);
  average_boxes(context, true);
  result.loss_dict = losses_of(last, labels, empty_weight);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Predictions outputs{logits[i], boxes[i]};
    match(outputs, labels, class_loss);
    for (Tensor& loss : losses_of(outputs, labels, empty_weight)) result.loss_dict.push_back(loss);
  }
  for (std::size_t i = 0; i < result.loss_dict.size(); ++i) {
    if (i % 4 == 3) continue;  // the error in the number of objects is none of the loss's parts
    const Tensor weighted = mul_scalar(result.loss_dict[i]);
    result.loss = result.loss ? add(result.loss, weighted) : add_scalar(weighted);
  }
  return result;
}

}  // namespace oometer
