// The guard that keeps cuBLAS on a tag's workspace, with a fake cuBLAS. static/interop_test.cpp compiles it with the
// real one.
#include "memsaver/arena/arena.hpp"
#include "memsaver/interop/cublas.hpp"
#include "support/each_of.hpp"

namespace interop_cublas_test {
using namespace test;

/// The state of a cuBLAS handle.
struct FakeBlas {
    int stream = 0;
    void* workspace = nullptr; // null: its own
    std::size_t bytes = 0;
    int fail = 0; // result of the next calls
};

struct FakeApi {
    using Handle = FakeBlas*;
    using Stream = int;

    static int set_stream(Handle handle, Stream stream) noexcept {
        if (handle->fail != 0) return handle->fail;
        handle->stream = stream;
        handle->workspace = nullptr; // as cuBLAS does
        handle->bytes = 0;
        return 0;
    }
    static int get_stream(Handle handle, Stream* stream) noexcept {
        *stream = handle->stream;
        return handle->fail;
    }
    static int set_workspace(Handle handle, void* workspace, std::size_t bytes) noexcept {
        if (handle->fail != 0) return handle->fail;
        handle->workspace = workspace;
        handle->bytes = bytes;
        return 0;
    }
    static const char* status_name(int) noexcept { return "FAKE_STATUS"; }
};

using Guard = BasicCublasWorkspace<FakeApi>;

void* used_by(FakeBlas* handle) { return handle->workspace; } // a cuBLAS call

TEST_CASE_FIXTURE(OnEither, "cuBLAS works in the tag's memory, whoever sets its stream") {
    const Arena arena = saver.arena("workspace");
    FakeBlas blas;
    {
        Guard guard{&blas, arena, 4_MiB};
        CHECK(blas.workspace == guard.workspace());
        CHECK(blas.bytes == 4_MiB);
        CHECK(arena.usage().used_bytes == 4_MiB);
        CHECK(saver.owns(guard.workspace()));
        guard.set_stream(7);
        CHECK(blas.stream == 7);
        CHECK(blas.workspace == guard.workspace());
        CHECK(FakeApi::set_stream(&blas, 8) == 0); // from a library that the program uses
        CHECK(blas.workspace == nullptr);
        CHECK(used_by(guard) == guard.workspace());
        CHECK(guard.handle() == &blas);
        void* const before = guard.workspace();
        pause_and_resume(saver);
        CHECK(used_by(guard) == before);
        const Guard moved{std::move(guard)};
        CHECK(used_by(moved) == before);
    }
    CHECK(blas.workspace == nullptr); // its own again
    CHECK(blas.stream == 8);
    CHECK(arena.usage().used_bytes == 0);
}

TEST_CASE_FIXTURE(OnHostSaver, "a region, and a workspace of a pool, serve as well") {
    FakeBlas blas;
    {
        const auto region = saver.region("workspace");
        const Guard guard{&blas, region};
        CHECK(guard.bytes() == 32_MiB);
        CHECK(used_by(guard) == guard.workspace());
    }
    WorkspacePool workspaces{saver.arena("workspace")};
    void* const shared = workspaces.get("cublas", 8_MiB);
    {
        const Guard guard{&blas, shared, 8_MiB};
        CHECK(used_by(guard) == shared);
    }
    CHECK(blas.workspace == nullptr);
    CHECK(workspaces.get("cublas", 8_MiB) == shared); // the guard must not free it
}

TEST_CASE_FIXTURE(OnSaver, "an error of cuBLAS is thrown with its name, and nothing is kept") {
    const Arena arena = saver.arena("workspace");
    FakeBlas blas;
    blas.fail = 13;
    const std::string text = text_of<DriverError>([&] { const Guard guard{&blas, arena, 1_MiB}; });
    CHECK_MESSAGE(contains(text, "cublasSetWorkspace"), text);
    CHECK_MESSAGE(contains(text, "FAKE_STATUS (13)"), text);
    CHECK(arena.usage().used_bytes == 0);
    blas.fail = 0;
    Guard guard{&blas, arena, 1_MiB};
    blas.fail = 14;
    CHECK(contains(text_of<DriverError>([&] { guard.set_stream(1); }), "cublasSetStream"));
    CHECK_THROWS_AS((void)guard.handle(), DriverError);
    CHECK_THROWS_AS((Guard{&blas, arena, 0}), Misuse);
}
} // namespace interop_cublas_test
