// A stack of its own that can be left and entered again (Boost.Context), known to the address and thread
// sanitizers. Fibers stay on the host thread that made them. Included by executor.cc alone.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <memory>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace headsweep::cuda_on_host::internal {

class Fiber {
 public:
  // The calling host thread's own stack, to come back to.
  Fiber() {
#if defined(__SANITIZE_THREAD__)
    tsan_ = __tsan_get_current_fiber();
#endif
  }

  // body() runs from the first Switch() to this fiber on. When it returns, the fiber is over and `home` goes
  // on.
  template <class Body>
  Fiber(Fiber& home, Body body) {
    namespace context = boost::context;
    fiber_ = context::fiber(std::allocator_arg, Stack{&bottom_, &bytes_},
                            [this, &home, body](context::fiber&& left) {
                              Arrive(std::move(left));
                              body();
                              Depart(home, /*for_good=*/true);
                              return std::move(home.fiber_);
                            });
#if defined(__SANITIZE_THREAD__)
    tsan_ = __tsan_create_fiber(0);
    own_tsan_ = true;
#endif
  }
  ~Fiber() {
#if defined(__SANITIZE_THREAD__)
    if (own_tsan_) __tsan_destroy_fiber(tsan_);
#endif
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves this fiber, which must be the running one, for `to`. Returns when somebody switches back here.
  void Switch(Fiber& to) {
    Depart(to, /*for_good=*/false);
    boost::context::fiber left = std::move(to.fiber_).resume();
    Arrive(std::move(left));
  }

 private:
  // Large enough for a kernel without optimisation; pages that are not touched cost nothing. A guard page
  // ends it.
  static constexpr std::size_t kStackBytes = 512 * 1024;

  struct Stack {
    const void** bottom;
    std::size_t* bytes;
    boost::context::stack_context allocate() {
      boost::context::stack_context stack = boost::context::protected_fixedsize_stack(kStackBytes).allocate();
      *bytes = stack.size;
      *bottom = static_cast<char*>(stack.sp) - stack.size;
      return stack;
    }
    void deallocate(boost::context::stack_context& stack) {
      boost::context::protected_fixedsize_stack(kStackBytes).deallocate(stack);
    }
  };

  void Depart([[maybe_unused]] Fiber& to, [[maybe_unused]] bool for_good) {
    leaving_ = this;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, to.bottom_, to.bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.tsan_, 0);
#endif
  }
  // On the stack that was entered: puts away the one that was left.
  void Arrive(boost::context::fiber&& left) {
    leaving_->fiber_ = std::move(left);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack_, &leaving_->bottom_, &leaving_->bytes_);
#endif
  }

  inline static thread_local Fiber* leaving_ = nullptr;

  boost::context::fiber fiber_;
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack_ = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan_ = nullptr;
  bool own_tsan_ = false;
#endif
};

}  // namespace headsweep::cuda_on_host::internal
