// Published tags: memory of one process that others map for reading, and that outlives its maker. Share::publish and
// Share::attach.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/saver/saver.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/tag_table.hpp"
#include "memsaver/share/keeper.hpp"
#include "memsaver/share/manifest.hpp"
#include "memsaver/share/published_device.hpp"
#include "memsaver/share/staging.hpp"
#include "memsaver/share/xxh64.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
    [[nodiscard]] void* writable() const {
        if (access == PublishAccess::shared)
            detail::misuse({"writable(): ", detail::in_quotes(name),
                            " is shared with other processes, for reading; publish it as copied to write it"});
        return const_cast<void*>(data);
    }
};

namespace detail {

template <std::size_t size>
void put_text(std::array<char, size>& to, std::string_view text, const char* what) {
    if (text.size() >= size || text.find('\0') != text.npos)
        misuse(
            {"publish: ", what, " ", in_quotes(text), " is longer than ", in_digits(size - 1), " bytes, or has a 0"});
    to.fill('\0');
    std::copy(text.begin(), text.end(), to.begin());
}

/// The publication's name and version, for texts.
inline std::string full_name(std::string_view name, std::string_view version) {
    return std::string{name} + (version.empty() ? "" : "@") + std::string{version};
}
inline std::string full_name(const PublicationFacts& facts) {
    return full_name(facts.name.data(), facts.version.data());
}

/// A tag about to be published. Takes everything back unless it is done.
class Publishing {
public:
    Publishing(const AnyDriver& driver, Arena arena, const std::vector<PublishedRange>& names)
        : driver_{driver}, arena_{std::move(arena)}, names_{names}, turns_{turns()}, contents_{core().seal()} {}
    Publishing& operator=(Publishing&&) = delete;
    ~Publishing() {
        if (done_) return;
        for (const Range& each : read_only_) {
            const auto undo = [&] { return driver_.allow_access(each.address, each.bytes, Rights::read_write); };
            Status status = undo();
            if (!status.ok()) status = undo();
            if (!status.ok())
                arena_.saver().ignore(core(), status, "make pages writable again; a pause and a resume do");
        }
        core().unseal(contents_);
    }

    /// Finds the named ranges, and refuses what cannot be read by others.
    void plan() {
        Vector<char> named(contents_.blocks.size());
        for (const PublishedRange& each : names_) {
            ManifestRow row;
            put_text(row.name, each.name, "the name");
            const Range range{as_address(each.data), each.bytes};
            const std::size_t block = block_with(range);
            const bool inside = block != contents_.blocks.size();
            if (inside) named[block] = 1;
            row.bytes = each.bytes;
            if (each.bytes == 0) {
                row.copied = each.access == PublishAccess::copied ? 1 : 0; // lies nowhere
            } else if (each.access == PublishAccess::copied) {
                const auto holder = arena_.saver().holder("publish", each.data, each.bytes);
                if (!arena_.saver().here(*holder, each.data, each.bytes))
                    misuse({"publish: ", in_quotes(each.name), " is paused, in tag ", in_quotes(holder->tag())});
                row.copied = 1;
                row.offset = manifest_.copied;
                manifest_.copied = align_up(manifest_.copied + each.bytes, BlockAllocator::unit);
            } else if (!inside) {
                misuse({"publish: ", in_quotes(each.name), ", ", in_bytes(each.bytes), " at ", in_hex(each.data),
                        ", is not in a live block of tag ", in_quotes(core().tag())});
            } else {
                row.offset = offset_of(range.address);
            }
            manifest_.rows.push_back(row);
        }
        for (std::size_t i = 0; i < named.size(); ++i) {
            if (named[i] != 0) continue;
            const LiveBlock& block = contents_.blocks[i];
            misuse({"publish: the block of ", in_bytes(block.bytes), " at ", in_hex(block.address), " in tag ",
                    in_quotes(core().tag()), " has no name: free it, or name it"});
        }
        std::vector<std::string_view> sorted;
        for (const ManifestRow& each : manifest_.rows) sorted.emplace_back(each.name.data());
        std::sort(sorted.begin(), sorted.end());
        const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
        if (twice != sorted.end()) misuse({"publish: two ranges have the name ", in_quotes(*twice)});
        if (contents_.extents.empty()) misuse({"publish: tag ", in_quotes(core().tag()), " has no memory"});
    }

    /// Makes the pages what readers will see, and the descriptors.
    void make(Publication& publication) {
        check(driver_.drain(), "wait for the device");
        Staging staging{driver_, manifest_.copied};
        zero_free_space(staging);
        publication.descriptors.emplace_back(); // the manifest's
        for (const Extent& each : contents_.extents) {
            manifest_.parts.push_back(each.bytes);
            publication.facts.bytes += each.bytes;
            Status status;
            publication.descriptors.push_back(ShareFd::exported([&] {
                int descriptor = -1;
                status = driver_.export_pages(each.pages, descriptor);
                return status.ok() ? descriptor : -1;
            }));
            check(status, "export pages");
        }
        Vector<std::byte> copies(manifest_.copied);
        for (std::size_t i = 0; i < names_.size(); ++i) {
            ManifestRow& row = manifest_.rows[i];
            if (row.copied == 0) continue;
            staging.read(copies.data() + row.offset, {as_address(names_[i].data), row.bytes});
            row.hash = hash_of(copies.data() + row.offset, row.bytes);
        }
        read_only_.reserve(contents_.extents.size());
        for (const Extent& each : contents_.extents) {
            if (each.sealed || is_written(each)) continue;
            read_only_.push_back(each.range());
            check(driver_.allow_access(each.address, each.bytes, Rights::read), "make pages read-only", each.bytes,
                  each.address);
        }
        std::vector<Range> ranges;
        for (const PublishedRange& each : names_) {
            if (each.access == PublishAccess::shared) ranges.push_back({as_address(each.data), each.bytes});
        }
        const Vector<std::uint64_t> hashes = hashes_of(driver_, ranges);
        auto hash = hashes.begin();
        for (ManifestRow& row : manifest_.rows)
            if (row.copied == 0) row.hash = *hash++;
        publication.facts.hash = manifest_.hash();
        publication.facts.descriptors = publication.descriptors.size();
        publication.descriptors.front() = manifest_.write(copies);
    }

    void done(const Keeper::Kept& kept) noexcept {
        core().set_published(kept);
        done_ = true;
        // What copies for an earlier version left writable: last, because nothing would undo it.
        for (const Extent& each : contents_.extents) {
            if (!each.sealed || is_written(each)) continue;
            const Status status = driver_.allow_access(each.address, each.bytes, Rights::read);
            if (!status.ok()) arena_.saver().ignore(core(), status, "make pages read-only");
        }
    }

private:
    [[nodiscard]] ArenaCore& core() const { return arena_.base(); }

    /// The turns of the tag and of those in which copied ranges lie: none of them is paused meanwhile.
    [[nodiscard]] Vector<Turn::Hold> turns() const {
        Vector<std::shared_ptr<ArenaCore>> others;
        for (const PublishedRange& each : names_) {
            if (each.access != PublishAccess::copied || each.bytes == 0) continue;
            auto holder = arena_.saver().holder("publish", each.data, each.bytes);
            if (!(holder->driver() == core().driver()))
                misuse({"publish: ", in_quotes(each.name), " is attached, or on another device than tag ",
                        in_quotes(core().tag())});
            if (holder.get() != &core() && !is_in(others, holder)) others.push_back(std::move(holder));
        }
        for (;;) {
            Vector<Turn::Hold> turns;
            turns.push_back(core().take_turn({}, "publish"));
            for (const auto& each : others) {
                auto turn = each->try_turn(); // not in the order of other operations, and so without a wait
                if (!turn) break;
                turns.push_back(std::move(turn));
            }
            if (turns.size() == others.size() + 1) return turns;
            ArenaCore& busy = *others[turns.size() - 1];
            turns.clear();
            (void)busy.take_turn({}, "publish"); // waits until it is free
        }
    }
    /// The block that holds the whole range; their number if none does.
    [[nodiscard]] std::size_t block_with(Range range) const {
        const auto after = std::upper_bound(contents_.blocks.begin(), contents_.blocks.end(), range.address,
                                            [](Address at, const LiveBlock& each) { return at < each.address; });
        if (range.bytes == 0 || after == contents_.blocks.begin()) return contents_.blocks.size();
        const LiveBlock& block = *std::prev(after);
        const std::size_t at = range.address - block.address;
        const bool inside = at < block.bytes && range.bytes <= block.bytes - at;
        return inside ? static_cast<std::size_t>(after - contents_.blocks.begin()) - 1 : contents_.blocks.size();
    }
    [[nodiscard]] std::uint64_t offset_of(Address address) const {
        std::uint64_t before = 0;
        for (const Extent& each : contents_.extents) {
            if (address < each.end()) return before + (address - each.address);
            before += each.bytes;
        }
        return before;
    }
    /// Whether ranges in it are copied for readers, and so may still be written here.
    [[nodiscard]] bool is_written(const Extent& extent) const {
        return any_in(names_, [&](const PublishedRange& each) {
            return each.access == PublishAccess::copied && each.bytes != 0 &&
                   overlap(extent.range(), {as_address(each.data), each.bytes});
        });
    }
    void zero_free_space(Staging& staging) const {
        std::size_t block = 0;
        for (const Extent& each : contents_.extents) {
            if (each.sealed) continue; // done when it was sealed
            Address at = each.address;
            for (; block < contents_.blocks.size() && contents_.blocks[block].address < each.end(); ++block) {
                const LiveBlock& live = contents_.blocks[block];
                if (live.address > at) staging.zero({at, live.address - at});
                at = std::max(at, live.address + live.bytes);
                if (at > each.end()) break; // it goes on in the next extent
            }
            if (at < each.end()) staging.zero({at, each.end() - at});
        }
    }

    const AnyDriver& driver_;
    Arena arena_;
    const std::vector<PublishedRange>& names_;
    Vector<Turn::Hold> turns_;
    ArenaCore::Contents contents_;
    Manifest manifest_;
    std::vector<Range> read_only_; ///< what was made so
    bool done_ = false;
};

/// See Share::publish. `driver`: the share's. Returns the hash.
inline std::uint64_t publish_tag(SaverCore& saver, const AnyDriver& driver, const ShareFolder& folder, Keeper& keeper,
                                 std::string_view name, const std::string& tag, const PublishOptions& options) {
    Publication publication;
    PublicationFacts& facts = publication.facts;
    if (name.empty()) misuse({"publish: a publication needs a name"});
    put_text(facts.name, name, "the name");
    put_text(facts.version, options.version, "the version");
    if (!driver.features().exports)
        unavailable({"publish: pages of ", driver.name(), " cannot be given to other processes"});
    if (!saver.enabled()) misuse({"publish: the saver is switched off"});
    (void)saver.bytes_to_resume(tag); // throws for a tag that is not there
    const std::string full = full_name(facts);
    const ShareFd lock = folder.lock(xxh64(full.data(), full.size()));
    if (!lock) misuse({"publish: another process is publishing ", in_quotes(full)});
    keeper.open();
    for (const PublicationFacts& each : keeper.list()) {
        if (each.name != facts.name) continue;
        if (each.version == facts.version)
            misuse({"publish: ", in_quotes(full), " is published already: withdraw it, or choose another version"});
        facts.made = std::max(facts.made, each.made + 1); // the latest, wherever the clock has gone
    }
    const Arena arena = saver.arena(tag);
    Keeper::Kept kept;
    {
        Publishing publishing{driver, arena, options.names};
        publishing.plan();
        publishing.make(publication);
        const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
        facts.made = std::max<std::int64_t>(facts.made, now.count());
        facts.id = random_number();
        kept = std::make_shared<const Publication>(std::move(publication));
        keeper.keep(kept, true);
        publishing.done(kept);
    }
    const Status status = keeper.offer(*kept);
    if (!keeper.keeps(*kept)) keeper.withdraw(name, kept->facts.id); // was withdrawn before the others had it
    if (!status.ok()) saver.ignore(arena.base(), status, "give the publication to all keepers");
    return kept->facts.hash;
}

/// See Share::withdraw.
inline void withdraw_name(const Keeper& keeper, std::string_view name) {
    const Vector<PublicationFacts> rows = keeper.list();
    if (!any_in(rows, [&](const PublicationFacts& each) { return std::string_view{each.name.data()} == name; }))
        unavailable({"withdraw: ", in_quotes(name), " is not published"});
    keeper.withdraw(name);
}

struct AttachedModel {
    std::weak_ptr<ArenaCore> arena; // a handle keeps nothing once the tag is dropped
    std::string name;
    std::uint64_t hash = 0;
    Vector<ManifestRow> rows; // sorted by name
    Address shared = 0;
    Address copied = 0;

    [[nodiscard]] AttachedRange range(const ManifestRow& row) const {
        const Address at = (row.copied != 0 ? copied : shared) + row.offset;
        return {row.name.data(), pointer_of(at), row.bytes,
                row.copied != 0 ? PublishAccess::copied : PublishAccess::shared};
    }
};

/// The publication that is meant, and which keepers do not answer. Throws Unavailable with those that are there.
inline PublicationFacts chosen(const Keeper& keeper, std::string_view name, const AttachOptions& options,
                               Vector<std::string>& silent) {
    const Vector<PublicationFacts> rows = keeper.list(&silent);
    const PublicationFacts* best = nullptr;
    std::string others;
    for (const PublicationFacts& each : rows) {
        others += (others.empty() ? "" : ", ") + full_name(each);
        if (std::string_view{each.name.data()} != name) continue;
        if (!options.version.empty() && options.version != each.version.data()) continue;
        if (best == nullptr || each.made > best->made) best = &each;
    }
    if (best == nullptr)
        unavailable({"attach: ", in_quotes(full_name(name, options.version)), " is not published; ",
                     others.empty() ? std::string_view{"nothing is"} : std::string_view{others}, " in this share",
                     silent.empty() ? "" : "; some that may keep it do not answer"});
    if (options.hash && *options.hash != best->hash)
        unavailable({"attach: ", in_quotes(full_name(*best)), " has the hash ", in_hex(best->hash), ", not ",
                     in_hex(*options.hash)});
    return *best;
}

/// See Share::attach. `inner`: the device without the share around it.
inline std::shared_ptr<const AttachedModel> attach_tag(SaverCore& saver, const AnyDriver& driver,
                                                       const AnyDriver& inner, Keeper& keeper, std::string_view name,
                                                       const AttachOptions& options) {
    if (!saver.enabled()) misuse({"attach: the saver is switched off"});
    Vector<std::string> silent;
    const PublicationFacts facts = chosen(keeper, name, options, silent);
    keeper.open();
    const std::uint64_t heard = keeper.heard();
    const Keeper::Kept kept = keeper.get(facts.id, silent);
    if (kept == nullptr)
        unavailable({"attach: ", in_quotes(full_name(facts)), " has been withdrawn, or none that keeps it answers"});
    Manifest manifest = Manifest::read(*kept);
    auto model = std::make_shared<AttachedModel>();
    model->name = full_name(facts);
    model->hash = facts.hash;
    const auto device = std::make_shared<PublishedDevice>(
        driver, inner, kept, Vector<std::size_t>(manifest.parts.begin(), manifest.parts.end()));
    std::size_t granularity = granularity_of(driver);
    std::size_t copied = align_up(manifest.copied, granularity);
    if (copied == device->shared_bytes()) copied += granularity; // its size tells the two handles apart
    // The capacity: the arena has these two blocks, and each is a handle of its own.
    ArenaOptions arena_options;
    arena_options.capacity = device->shared_bytes() + copied;
    arena_options.single_handle = true;
    arena_options.margin = 1; // one of its own, so that the saver's is not set, and none: shared pages take no memory
    const Arena arena = saver.arena(model->name, AnyPolicy{PublishedPolicy{device}}, AnyDriver{device}, arena_options);
    arena.base().set_margin(0);
    arena.base().set_borrowed(device->shared_bytes());
    model->arena = arena.base().weak_from_this();
    try {
        model->shared = as_address(arena.allocate(device->shared_bytes()));
        if (copied != 0) {
            model->copied = as_address(arena.allocate(copied));
            const int file = kept->descriptors.front().get();
            Staging{inner, manifest.copied}.write(
                {model->copied, manifest.copied}, [&](std::size_t done, void* buffer, std::size_t part) {
                    const auto at = static_cast<off_t>(manifest.copies_at + done);
                    if (::pread(file, buffer, part, at) != static_cast<ssize_t>(part))
                        unavailable({"attach: the copies of ", in_quotes(model->name), " cannot be read"});
                });
        }
        keeper.keep_got(kept, heard);
    } catch (...) {
        try {
            saver.drop(model->name);
        } catch (const Error& error) { // the first failure is what is wrong
            saver.ignore(arena.base(), error.status(), "drop what was attached in part");
        }
        throw;
    }
    model->rows = std::move(manifest.rows);
    std::sort(model->rows.begin(), model->rows.end(), [](const ManifestRow& a, const ManifestRow& b) {
        return std::string_view{a.name.data()} < b.name.data();
    });
    return model;
}

} // namespace detail

/// A publication in this process: a tag of the saver, paused and resumed like any other. A handle; the tag stays until
/// `saver.drop(model.tag())` or the saver's end, and this process keeps the publication as long as it is a member.
class Attached {
public:
    /// The publication's name, and its version: "llama-70b@2026-11".
    [[nodiscard]] const std::string& tag() const noexcept { return model_->name; }
    /// Throws Misuse if there is no such name. The address does not change, and may be used while the tag is resumed.
    [[nodiscard]] AttachedRange at(std::string_view name) const {
        const auto found =
            std::lower_bound(model_->rows.begin(), model_->rows.end(), name,
                             [](const detail::ManifestRow& row, std::string_view to) { return row.name.data() < to; });
        if (found == model_->rows.end() || found->name.data() != name)
            detail::misuse({"at: nothing has the name ", detail::in_quotes(name), " in ", detail::in_quotes(tag())});
        return model_->range(*found);
    }
    /// All of them, in the order of their names.
    [[nodiscard]] std::vector<AttachedRange> ranges() const {
        std::vector<AttachedRange> all;
        for (const detail::ManifestRow& row : model_->rows) all.push_back(model_->range(row));
        return all;
    }
    /// Of the named bytes: the same for the same names and bytes, wherever they were published.
    [[nodiscard]] std::uint64_t hash() const noexcept { return model_->hash; }
    /// Reads the shared ranges again and compares them with what was published. Throws PublicationDamaged, naming the
    /// range, or Misuse if the tag is paused.
    void verify() const {
        detail::translated([&] {
            const auto core = model_->arena.lock();
            if (core == nullptr) detail::misuse({"verify: tag ", detail::in_quotes(tag()), " was dropped"});
            const auto turn = core->take_turn({}, "verify"); // no pause meanwhile
            detail::Vector<const detail::ManifestRow*> rows;
            std::vector<Range> ranges;
            for (const detail::ManifestRow& row : model_->rows) {
                if (row.copied != 0 || row.bytes == 0) continue; // this process may have written it
                const AttachedRange range = model_->range(row);
                if (!core->here(range.data, range.bytes))
                    detail::misuse({"verify: tag ", detail::in_quotes(tag()), " is paused"});
                rows.push_back(&row);
                ranges.push_back({detail::as_address(range.data), range.bytes});
            }
            const detail::Vector<std::uint64_t> hashes = detail::hashes_of(core->driver(), ranges);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                if (hashes[i] == rows[i]->hash) continue;
                throw PublicationDamaged{detail::text_of({"verify: ", detail::in_quotes(rows[i]->name.data()), " in ",
                                                          detail::in_quotes(tag()), " is not what was published"})};
            }
        });
    }

    Attached(const Attached&) = default; // a move copies
    Attached& operator=(const Attached&) = default;
    ~Attached() = default;

private:
    friend class Share;
    explicit Attached(std::shared_ptr<const detail::AttachedModel> model) noexcept : model_{std::move(model)} {}

    std::shared_ptr<const detail::AttachedModel> model_;
};

} // namespace memsaver::inline v0_3
