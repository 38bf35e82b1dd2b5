#include "nn/rows.h"

#include <algorithm>
#include <numeric>

#include "tensor/shape.h"

namespace oometer {

namespace {

std::int64_t tokens_of(const std::vector<std::int64_t>& row) {
  return std::accumulate(row.begin(), row.end(), std::int64_t{0});
}

}  // namespace

bool Rows::are_padded(std::int64_t length) const {
  return std::any_of(documents.begin(), documents.end(),
                     [&](const std::vector<std::int64_t>& row) { return tokens_of(row) < length; });
}

bool Rows::are_packed() const {
  return has_positions && std::any_of(documents.begin(), documents.end(),
                                      [](const std::vector<std::int64_t>& row) { return row.size() > 1; });
}

std::int64_t Rows::tokens() const {
  std::int64_t total = 0;
  for (const std::vector<std::int64_t>& row : documents) total += tokens_of(row);
  return total;
}

std::int64_t Rows::count() const {
  std::int64_t total = 0;
  for (const std::vector<std::int64_t>& row : documents) total += static_cast<std::int64_t>(row.size());
  return total;
}

std::int64_t Rows::longest() const {
  std::int64_t most = 0;
  for (const std::vector<std::int64_t>& row : documents)
    for (const std::int64_t tokens : row) most = std::max(most, tokens);
  return most;
}

std::int64_t Rows::pairs() const {
  std::int64_t total = 0;
  for (const std::vector<std::int64_t>& row : documents)
    for (const std::int64_t tokens : row) total += checked_product(tokens, tokens);
  return total;
}

}  // namespace oometer
