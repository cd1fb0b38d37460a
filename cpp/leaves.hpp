// The leaf problem: what each leaf answers, and the loss of a point in any leaf.
//
// Points live at positions: sorted by leaf, so that every node is a contiguous range. A model keeps
// its targets in that order.
#pragma once

#include <cstring>
#include <memory>

#include "rows.hpp"

namespace silva {

// Losses that depend on the leaf and on the kind of a point alone. Where all leaves below a node
// charge a kind the same, no point of that kind need be walked down from there.
struct LossTable {
  const std::uint8_t* kind = nullptr;  // position -> kind modulo 64; null: there is no table
  const float* loss = nullptr;         // (leaves, kinds), of a point of weight one
  std::size_t kinds = 0;
};

class LeafModel {
 public:
  virtual ~LeafModel() = default;
  // Takes the targets into the order of positions: position p holds original row order[p].
  virtual void reorder(const std::vector<std::uint32_t>& order) = 0;
  // Refits every leaf; leaf l holds positions [start[l], start[l + 1]). An empty leaf answers for
  // all rows, so that the answers depend on the partition alone, not on how it was reached.
  virtual void fit(const std::vector<std::size_t>& start, Team& team) = 0;
  // Weighted loss of position[i] in leaf[i].
  virtual void losses(const std::uint32_t* position, std::size_t count, const std::int32_t* leaf,
                      float* out) const = 0;
  virtual LossTable table() const { return {}; }
  // What the objective charges for the answers themselves.
  virtual double penalty() const { return 0; }
  virtual std::size_t outputs() const = 0;
  // (leaves, outputs); linear models append their slopes through `slopes` and `bounds`.
  virtual std::vector<double> values() const = 0;
  virtual std::vector<double> slopes() const { return {}; }
  virtual std::vector<double> bounds() const { return {}; }
};

enum class ClassLoss { kMisclassification, kSquared, kLog };

// Class shares at a leaf. The loss of a point is a table look-up: table[leaf][class]. Several
// targets (outputs) share the leaf; their classes are numbered one after the other and their
// losses add up.
class ClassLeaves final : public LeafModel {
 public:
  ClassLeaves(std::vector<std::int32_t> codes, std::vector<float> weight,
              std::vector<std::int32_t> class_begin, std::size_t leaves, ClassLoss loss)
      : codes_(std::move(codes)),
        weight_(std::move(weight)),
        class_begin_(std::move(class_begin)),
        loss_(loss),
        targets_(class_begin_.size() - 1),
        classes_(static_cast<std::size_t>(class_begin_.back())),
        shares_(leaves * classes_),
        table_(leaves * classes_) {
    overall_.assign(classes_, 0.0);
    for (std::size_t i = 0; i < weight_.size(); ++i)
      count(codes_.data(), weight_.data(), i, overall_);
    for (std::size_t l = 0; l < leaves; ++l) answer(l, overall_);
    placed_codes_ = codes_;
    placed_weight_ = weight_;
    if (targets_ == 1 && loss_ == ClassLoss::kMisclassification) {
      kind_.resize(codes_.size());
      for (std::size_t i = 0; i < codes_.size(); ++i)
        kind_[i] = static_cast<std::uint8_t>(codes_[i] % 64);
      placed_kind_ = kind_;
    }
  }

  void reorder(const std::vector<std::uint32_t>& order) override {
    for (std::size_t p = 0; p < order.size(); ++p) {
      std::memcpy(&placed_codes_[p * targets_], &codes_[order[p] * targets_],
                  targets_ * sizeof(std::int32_t));
      placed_weight_[p] = weight_[order[p]];
    }
    for (std::size_t p = 0; p < kind_.size(); ++p) placed_kind_[p] = kind_[order[p]];
  }
  void fit(const std::vector<std::size_t>& start, Team& team) override {
    for_pieces(team, start.size() - 1, 64, [&](std::size_t begin, std::size_t end, int) {
      std::vector<double> total(classes_);
      for (std::size_t l = begin; l < end; ++l) {
        std::fill(total.begin(), total.end(), 0.0);
        for (std::size_t p = start[l]; p < start[l + 1]; ++p)
          count(placed_codes_.data(), placed_weight_.data(), p, total);
        answer(l, start[l] < start[l + 1] ? total : overall_);
      }
    });
  }
  void losses(const std::uint32_t* position, std::size_t count, const std::int32_t* leaf,
              float* out) const override {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t p = position[i];
      const float* row = table_.data() + static_cast<std::size_t>(leaf[i]) * classes_;
      float total = 0;
      for (std::size_t k = 0; k < targets_; ++k) total += row[placed_codes_[p * targets_ + k]];
      out[i] = placed_weight_[p] * total;
    }
  }
  // Only the losses of misclassification are often equal in neighbouring leaves.
  LossTable table() const override {
    if (kind_.empty()) return {};
    return {placed_kind_.data(), table_.data(), classes_};
  }
  std::size_t outputs() const override { return classes_; }
  std::vector<double> values() const override { return shares_; }

 private:
  void count(const std::int32_t* codes, const float* weight, std::size_t i,
             std::vector<double>& total) const {
    for (std::size_t k = 0; k < targets_; ++k)
      total[static_cast<std::size_t>(codes[i * targets_ + k])] += static_cast<double>(weight[i]);
  }
  void answer(std::size_t leaf, const std::vector<double>& total) {
    double* share = shares_.data() + leaf * classes_;
    float* table = table_.data() + leaf * classes_;
    for (std::size_t k = 0; k < targets_; ++k) {
      const auto begin = static_cast<std::size_t>(class_begin_[k]);
      const auto end = static_cast<std::size_t>(class_begin_[k + 1]);
      double sum = 0, squares = 0;
      for (std::size_t c = begin; c < end; ++c) sum += total[c];
      const auto majority = static_cast<std::size_t>(
          std::max_element(total.begin() + class_begin_[k], total.begin() + class_begin_[k + 1]) -
          total.begin());
      for (std::size_t c = begin; c < end; ++c) {
        share[c] = sum > 0 ? total[c] / sum : 1.0 / static_cast<double>(end - begin);
        squares += share[c] * share[c];
      }
      const double classes = static_cast<double>(end - begin);
      for (std::size_t c = begin; c < end; ++c) switch (loss_) {
          case ClassLoss::kMisclassification:
            table[c] = c == majority ? 0.0f : 1.0f;
            break;
          case ClassLoss::kSquared:  // |e_c - share|^2
            table[c] = static_cast<float>(1 - 2 * share[c] + squares);
            break;
          case ClassLoss::kLog:  // one row's weight spread over the classes keeps it finite
            table[c] = static_cast<float>(-std::log((total[c] + 1 / classes) / (sum + 1)));
            break;
        }
    }
  }

  std::vector<std::int32_t> codes_;
  std::vector<float> weight_;
  std::vector<std::int32_t> class_begin_;
  ClassLoss loss_;
  std::size_t targets_, classes_;
  std::vector<double> shares_, overall_;
  std::vector<float> table_;
  std::vector<std::int32_t> placed_codes_;
  std::vector<float> placed_weight_;
  std::vector<std::uint8_t> kind_, placed_kind_;  // see LossTable
};

// Targets of a regression in both orders; shared by constant and linear leaves.
class Targets {
 public:
  Targets(std::vector<float> values, std::vector<float> weight, std::size_t outputs)
      : outputs(outputs),
        value(values),
        weight(weight),
        original_value_(std::move(values)),
        original_weight_(std::move(weight)) {}

  void reorder(const std::vector<std::uint32_t>& order) {
    for (std::size_t p = 0; p < order.size(); ++p) {
      std::memcpy(&value[p * outputs], &original_value_[order[p] * outputs],
                  outputs * sizeof(float));
      weight[p] = original_weight_[order[p]];
    }
  }
  const float* original(std::size_t i) const { return &original_value_[i * outputs]; }
  float original_weight(std::size_t i) const { return original_weight_[i]; }

  std::size_t outputs;
  std::vector<float> value, weight;  // in the order of positions

 private:
  std::vector<float> original_value_, original_weight_;
};

// The weighted mean of the targets at a leaf; squared error.
class MeanLeaves final : public LeafModel {
 public:
  MeanLeaves(Targets targets, std::size_t leaves)
      : targets_(std::move(targets)), mean_(leaves * targets_.outputs) {
    average(0, 0, targets_.weight.size());
    overall_.assign(mean_.begin(), mean_.begin() + static_cast<std::ptrdiff_t>(targets_.outputs));
    for (std::size_t l = 0; l < leaves; ++l) answer_for_all(l);
  }

  void reorder(const std::vector<std::uint32_t>& order) override { targets_.reorder(order); }
  void fit(const std::vector<std::size_t>& start, Team& team) override {
    for_pieces(team, start.size() - 1, 64, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t l = begin; l < end; ++l) {
        if (start[l] < start[l + 1])
          average(l, start[l], start[l + 1]);
        else
          answer_for_all(l);
      }
    });
  }
  void losses(const std::uint32_t* position, std::size_t count, const std::int32_t* leaf,
              float* out) const override {
    const std::size_t k = targets_.outputs;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t p = position[i];
      const double* mean = mean_.data() + static_cast<std::size_t>(leaf[i]) * k;
      const float* target = targets_.value.data() + p * k;
      float total = 0;
      for (std::size_t o = 0; o < k; ++o) {
        const float error = target[o] - static_cast<float>(mean[o]);
        total += error * error;
      }
      out[i] = targets_.weight[p] * total;
    }
  }
  std::size_t outputs() const override { return targets_.outputs; }
  std::vector<double> values() const override { return mean_; }

 private:
  void answer_for_all(std::size_t leaf) {
    std::copy(overall_.begin(), overall_.end(),
              mean_.begin() + static_cast<std::ptrdiff_t>(leaf * targets_.outputs));
  }
  void average(std::size_t leaf, std::size_t begin, std::size_t end) {
    const std::size_t k = targets_.outputs;
    std::vector<double> sum(k, 0.0);
    double total = 0;
    for (std::size_t p = begin; p < end; ++p) {
      total += static_cast<double>(targets_.weight[p]);
      for (std::size_t o = 0; o < k; ++o)
        sum[o] += static_cast<double>(targets_.weight[p]) *
                  static_cast<double>(targets_.value[p * k + o]);
    }
    for (std::size_t o = 0; o < k; ++o) mean_[leaf * k + o] = sum[o] / total;
  }

  Targets targets_;
  std::vector<double> mean_, overall_;
};

}  // namespace silva
