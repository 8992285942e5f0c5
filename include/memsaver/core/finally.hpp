// What is done at the end of a scope, however it ends.
#pragma once

#include <utility>

namespace memsaver::inline v0_3::detail {

/// Calls a function, which must not throw, when it is destroyed.
template <class F>
class [[nodiscard]] Finally {
public:
    explicit Finally(F end) : end_{std::move(end)} {}
    Finally& operator=(Finally&&) = delete;
    ~Finally() { end_(); }

private:
    F end_;
};

} // namespace memsaver::inline v0_3::detail
