// Published tags: memory of one process that others map for reading, and that outlives its maker. Share::publish and
// Share::attach.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/saver/saver.hpp"
#include "memsaver/share/keeper.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace memsaver::inline v0_3 {

/// How readers have a range: all the same pages, or each a copy that it may write, from host memory of the publication.
enum class PublishAccess : unsigned char { shared, copied };

/// Bytes that readers find by name.
struct PublishedRange {
    /// At most 199 bytes; each name once.
    std::string name{};
    /// Shared: in a live block of the published tag. Copied: in live blocks of any tag of the saver. No bytes:
    /// anywhere.
    const void* data = nullptr;
    std::size_t bytes = 0;
    PublishAccess access = PublishAccess::shared;
};

/// Options of Share::publish.
struct PublishOptions {
    /// Versions of one name stand side by side. At most 63 bytes.
    std::string version{};
    /// All that readers see. Every live block of the tag has at least one name in it.
    std::vector<PublishedRange> names{};
};

/// Options of Share::attach.
struct AttachOptions {
    /// Empty: the version that was published last.
    std::string version{};
    /// Refuses a publication of other bytes; see Share::publish.
    std::optional<std::uint64_t> hash{};
};

/// Bytes of a publication are not those that were published: somebody wrote them.
class [[gnu::visibility("default")]] PublicationDamaged : public detail::RuntimeError {
    using RuntimeError::RuntimeError;
};

/// A range of a publication, at its address in this process.
struct AttachedRange {
    std::string name{};
    const void* data = nullptr;
    std::size_t bytes = 0;
    PublishAccess access = PublishAccess::shared;

    /// This process's copy. Throws Misuse for a shared range, which is for reading.
    [[nodiscard]] inline void* writable() const;
};

namespace detail {
struct AttachedModel;
} // namespace detail

/// A publication in this process: a tag of the saver, paused and resumed like any other. A handle; the tag stays until
/// `saver.drop(model.tag())` or the saver's end, and this process keeps the publication as long as it is a member.
class Attached {
public:
    /// The publication's name, and its version: "llama-70b@2026-11".
    [[nodiscard]] inline const std::string& tag() const noexcept;
    /// Throws Misuse if there is no such name. The address does not change, and may be used while the tag is resumed.
    [[nodiscard]] inline AttachedRange at(std::string_view name) const;
    /// All of them, in the order of their names.
    [[nodiscard]] inline std::vector<AttachedRange> ranges() const;
    /// Of the named bytes: the same for the same names and bytes, wherever they were published.
    [[nodiscard]] inline std::uint64_t hash() const noexcept;
    /// Reads the shared ranges again and compares them with what was published. Throws PublicationDamaged, naming the
    /// range, or Misuse if the tag is paused.
    inline void verify() const;

    Attached(const Attached&) = default; // a move copies
    Attached& operator=(const Attached&) = default;
    ~Attached() = default;

private:
    friend class Share;
    explicit Attached(std::shared_ptr<const detail::AttachedModel> model) noexcept : model_{std::move(model)} {}

    std::shared_ptr<const detail::AttachedModel> model_;
};

namespace detail {

/// See Share::publish. `driver`: the share's. Returns the hash.
std::uint64_t publish_tag(SaverCore& saver, const AnyDriver& driver, const ShareFolder& folder, Keeper& keeper,
                          std::string_view name, const std::string& tag, const PublishOptions& options);
/// See Share::attach. `inner`: the device without the share around it.
std::shared_ptr<const AttachedModel> attach_tag(SaverCore& saver, const AnyDriver& driver, const AnyDriver& inner,
                                                Keeper& keeper, std::string_view name, const AttachOptions& options);
/// See Share::withdraw.
void withdraw_name(const Keeper& keeper, std::string_view name);

} // namespace detail

} // namespace memsaver::inline v0_3

#include "memsaver/share/publication.ipp"
