// When bytes are saved, and for how long they are kept.
#pragma once

#include "memsaver/core/vector.hpp"

#include <concepts>
#include <memory>
#include <string>

namespace memsaver::inline v0_3 {

class AnyDriver;

namespace detail {

class ByteStore;
class Ring;
struct CrewOptions;
struct Piece;
struct Unit;

/// Throws Misuse if the device's bytes differ from those in `store`. `units` are whole blocks; `pieces` are the same
/// bytes, cut.
void compare_with(const ByteStore& store, const AnyDriver& driver, const Vector<Unit>& units, Vector<Piece> pieces,
                  std::shared_ptr<Ring> ring, const CrewOptions& crew, const std::string& tag);

} // namespace detail

/// Whether pauses compare the bytes that they skip with those of the device; converts from and to bool. A program that
/// never says so compiles no comparison.
class Check {
public:
    Check() noexcept = default;
    template <std::same_as<bool> B>
    Check(B yes) noexcept : yes_{yes}, compare_{&detail::compare_with} {}

    [[nodiscard]] operator bool() const noexcept { return yes_; }
    /// Compares; null unless a value was given.
    [[nodiscard]] auto compare() const noexcept { return compare_; }

    friend bool operator==(Check a, Check b) noexcept { return a.yes_ == b.yes_; }

private:
    bool yes_ = false;
    decltype(&detail::compare_with) compare_ = nullptr;
};

/// When bytes are saved: at every pause; or once, and again after `invalidate`.
enum class Refresh : unsigned char { every_pause, once };

namespace detail {

/// Options of a StoredSlot.
struct StoredSlotOptions {
    Refresh refresh = Refresh::every_pause;
    bool retain = true; ///< keep the storage after a resume, for the next pause
    Check check{};      ///< with Refresh::once: every pause compares the bytes that it skips, and fails if they differ
};

} // namespace detail

} // namespace memsaver::inline v0_3
