// The base of classes that are neither copied nor moved.
#pragma once

namespace memsaver::inline v0_3::detail {

class Immovable {
public:
    Immovable(const Immovable&) = delete;
    Immovable& operator=(const Immovable&) = delete;

protected:
    Immovable() noexcept = default;
    ~Immovable() = default;
};

} // namespace memsaver::inline v0_3::detail
