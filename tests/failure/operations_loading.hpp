// Operations on a tag whose bytes are sourced from a file, beside "swept": loading, pausing, resuming, and changes of
// memory and file.
#pragma once

#include "backup/file_source_support.hpp"
#include "failure/operation_states.hpp"

namespace test {

/// A file whose bytes differ in one place from those that the block loaded from it should have.
struct SweptFile {
    static constexpr std::size_t bytes = 37'500;
    static constexpr std::size_t offset = 777;
    static constexpr std::uint64_t seed = 1250;
    /// The range in which the block's bytes differ.
    static constexpr std::size_t changed_at = 12'500;
    static constexpr std::size_t changed_bytes = 2500;

    SweptFile() {
        std::vector<unsigned char> all(offset, 0xEE);
        const std::vector<unsigned char>& content = expected_bytes(bytes, seed);
        all.insert(all.end(), content.begin(), content.end());
        (void)files_.put("whole", all);
        std::memset(all.data() + offset + changed_at, 0xDD, changed_bytes);
        (void)files_.put("other", all);
        all.resize(offset + bytes / 2);
        (void)files_.put("short", all);
    }

    [[nodiscard]] std::string path(const std::string& which) const {
        const Unmetered own;
        return files_.path(which);
    }
    /// Moves a file away as long as it lives.
    struct Away {
        explicit Away(std::string path) : path_{std::move(path)} {
            const Unmetered own;
            std::filesystem::rename(path_, path_ + ".away");
        }
        ~Away() {
            const Unmetered own;
            std::error_code ignored;
            std::filesystem::rename(path_ + ".away", path_, ignored);
        }

    private:
        std::string path_;
    };

    static const SweptFile& get() {
        static const SweptFile file;
        return file;
    }

private:
    ModelFiles files_;
};

/// Returns the only block of "loaded".
inline Populated::Block& loaded_block(Populated& world) { return world.tags["loaded"].blocks.front(); }

inline void with_loadable(Populated& world) {
    (void)world.saver->arena("loaded", FileSource{.threads = 1, .ring_bytes = 4_MiB});
    world.allocate("loaded", SweptFile::bytes);
}

/// Loads the whole block. On failure, some of the bytes may be the new ones.
inline void load_whole(Populated& world) {
    Populated::Block& block = loaded_block(world);
    block.content = Becomes::unknown;
    block.kept = false;
    world.saver->load(block.at, block.bytes, SweptFile::get().path("whole"), SweptFile::offset);
    block.seed = SweptFile::seed;
    block.content = Becomes::kept;
    block.kept = true;
}

inline void with_loaded(Populated& world) {
    with_loadable(world);
    load_whole(world);
}

/// Loads from a file that differs in one place. The model's content is set once the bytes are corrected.
inline void with_other_bytes(Populated& world) {
    with_loadable(world);
    Populated::Block& block = loaded_block(world);
    world.saver->load(block.at, block.bytes, SweptFile::get().path("other"), SweptFile::offset);
    block.content = Becomes::unknown;
    block.kept = false;
    block.seed = SweptFile::seed;
}
inline const unsigned char* right_bytes() {
    return expected_bytes(SweptFile::bytes, SweptFile::seed).data() + SweptFile::changed_at;
}
inline unsigned char* changed_bytes(Populated& world) {
    return static_cast<unsigned char*>(loaded_block(world).at) + SweptFile::changed_at;
}
inline void bytes_are_right(Populated& world) {
    loaded_block(world).content = Becomes::kept;
    loaded_block(world).kept = true;
}

inline std::vector<Operation> loading() {
    const auto loaded = [](Populated& world) {
        CHECK(world.is("active", "loaded"));
        world.check_bytes("loaded");
        world.pause("loaded"); // the resume restores these bytes
        world.check_bytes("loaded");
        world.resume("loaded");
        world.check_bytes("loaded");
    };
    const auto away = [](Populated& world) {
        CHECK(world.is("paused", "loaded"));
        CHECK(row_of(*world.saver, "loaded").mapped_bytes == 0);
        world.check_bytes("loaded");
    };
    const auto pause = [](Populated& world) { world.pause("loaded"); };
    const auto paused = all_of(with_loaded, pause);
    const auto correct = [](Populated& world) {
        std::memcpy(changed_bytes(world), right_bytes(), SweptFile::changed_bytes);
        world.saver->invalidate(changed_bytes(world), SweptFile::changed_bytes);
        bytes_are_right(world);
    };
    return {
        {"load", with_loadable, load_whole, loaded},
        {"load: over bytes loaded before", with_other_bytes, load_whole, loaded},
        {"load: a part", with_other_bytes,
         [](Populated& world) {
             world.saver->load(changed_bytes(world), SweptFile::changed_bytes, SweptFile::get().path("whole"),
                               SweptFile::offset + SweptFile::changed_at);
             bytes_are_right(world);
         },
         loaded},
        {"load: of a file that is too short, or not there", with_loaded,
         [](Populated& world) {
             Populated::Block& block = loaded_block(world);
             for (const char* which : {"short", "missing"}) {
                 CHECK(!succeeds<Error>([&] {
                     world.saver->load(block.at, block.bytes, SweptFile::get().path(which), SweptFile::offset);
                 }));
                 CHECK(Populated::holds(block));
             }
         },
         loaded},
        {"load: pause", with_loaded, pause, away},
        {"load: pause, of bytes that the file no longer has", with_loaded,
         [pause](Populated& world) {
             const SweptFile::Away gone{SweptFile::get().path("whole")};
             pause(world);
         },
         away},
        {"load: resume", paused, [](Populated& world) { world.resume("loaded"); }, loaded},
        {"load: resume while the file is away", paused,
         [](Populated& world) {
             if (world.is("active", "loaded")) return;
             CHECK(!succeeds<Error>([&] {
                 const SweptFile::Away gone{SweptFile::get().path("whole")};
                 world.resume("loaded");
             }));
             world.resume("loaded");
         },
         loaded},
        {"load: invalidate a range", with_other_bytes, correct, loaded},
        {"load: pause with a range that is kept", all_of(with_other_bytes, correct), pause, away},
        {"load: write_backup",
         [pause](Populated& world) {
             with_other_bytes(world);
             pause(world);
             loaded_block(world).content = Becomes::unknown;
         },
         [](Populated& world) {
             world.saver->write_backup(changed_bytes(world), right_bytes(), SweptFile::changed_bytes);
             bytes_are_right(world);
         },
         away},
    };
}
} // namespace test
