// A team of threads for one fit or one prediction.
//
// Plain threads with passive waits rather than OpenMP: a team that spins between two levels of a
// tree ruins a shared machine, GNU's OpenMP runtime hangs in a forked child, and macOS ships none.
// Tasks are independent and each reduction belongs to one task, so results are the same for any
// number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace silva {

class Team {
 public:
  explicit Team(int threads) {
    for (int id = 1; id < threads; ++id) members_.emplace_back([this, id] { serve(id); });
  }
  ~Team() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    work_.notify_all();
    for (auto& member : members_) member.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(members_.size()) + 1; }

  // task(index, worker) for every index in [0, count); worker < size() names a workspace.
  // The first exception of a task is thrown here, after all have ended.
  void run(std::size_t count, const std::function<void(std::size_t, int)>& task) {
    if (members_.empty() || count <= 1) {
      for (std::size_t i = 0; i < count; ++i) task(i, 0);
      return;
    }
    {
      std::lock_guard lock(mutex_);
      task_ = &task;
      count_ = count;
      next_.store(0);
      busy_ = static_cast<int>(members_.size());
      failure_ = nullptr;
      ++round_;
    }
    work_.notify_all();
    take(task, 0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    task_ = nullptr;
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void take(const std::function<void(std::size_t, int)>& task, int id) {
    try {
      for (std::size_t i = next_++; i < count_; i = next_++) task(i, id);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      next_.store(count_);
    }
  }
  void serve(int id) {
    std::size_t seen = 0;
    for (;;) {
      const std::function<void(std::size_t, int)>* task;
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [&] { return closing_ || round_ != seen; });
        if (closing_) return;
        seen = round_;
        task = task_;
      }
      take(*task, id);
      std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> members_;
  std::mutex mutex_;
  std::condition_variable work_, done_;
  const std::function<void(std::size_t, int)>* task_ = nullptr;
  std::size_t count_ = 0;
  std::atomic<std::size_t> next_{0};
  int busy_ = 0;
  std::size_t round_ = 0;
  bool closing_ = false;
  std::exception_ptr failure_;
};

// body(begin, end, worker) over consecutive pieces of [0, count).
template <class Body>
void for_pieces(Team& team, std::size_t count, std::size_t piece, const Body& body) {
  const std::size_t pieces = (count + piece - 1) / piece;
  team.run(pieces, [&](std::size_t k, int worker) {
    const std::size_t begin = k * piece;
    body(begin, begin + piece < count ? begin + piece : count, worker);
  });
}

}  // namespace silva
