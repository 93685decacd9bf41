// Other bodies for kernels that are slow, beside those of weft's kernels as they are, on a real GPU:
//
//   gpu_variants [MIB]   microseconds and the share of the driver's copy of the same bytes; medians of rounds in turns
//   gpu_variants host    no GPU: each body on the host against a plain loop, bit by bit
//
// Each variant is a function of one thread's number, so that the host can run it. Those that win become bodies of
// src/device/body_*.h; the others go.
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#define FN static __host__ __device__ __forceinline__
#define ROUNDS 15
#define THREADS 256

struct words16 {
    uint32_t v[4];
};

FN words16 load16(const void *p)
{
#ifdef __CUDA_ARCH__
    uint4 w = *(const uint4 *)p;
    return words16{{w.x, w.y, w.z, w.w}};
#else
    words16 w;
    memcpy(&w, p, sizeof w);
    return w;
#endif
}

FN void store16(void *p, const words16 &w)
{
#ifdef __CUDA_ARCH__
    *(uint4 *)p = make_uint4(w.v[0], w.v[1], w.v[2], w.v[3]);
#else
    memcpy(p, &w, sizeof w);
#endif
}

// The 32 bits that begin `bits` bits behind the lowest of high:low.
FN uint32_t funnel(uint32_t low, uint32_t high, uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __funnelshift_r(low, high, bits);
#else
    return bits ? low >> bits | high << (32 - bits) : low;
#endif
}

// ---- copies whose source is not aligned as the destination is ----

// As it is now for a source off by 4: four words of 4 bytes, THREADS apart.
FN void copy_words(unsigned char *to, const unsigned char *from, size_t block, unsigned thread, size_t units)
{
    for (unsigned k = 0; k < 4; k++) {
        size_t u = block * THREADS * 4 + k * THREADS + thread;
        if (u * 4 < units * 16)
            ((uint32_t *)to)[u] = ((const uint32_t *)from)[u];
    }
}

// Two aligned loads and a shift by any number of bytes. The aligned words around a whole unit are in the allocation:
// allocations are aligned to 256 bytes, and so is their end.
FN void copy_funnel(unsigned char *to, const unsigned char *from, size_t block, unsigned thread, size_t units)
{
    size_t u = block * THREADS + thread;
    if (u >= units)
        return;
    const uintptr_t at = (uintptr_t)from + u * 16;
    const unsigned off = at % 16, skip = off / 4, bits = off % 4 * 8;
    words16 low = load16((const void *)(at - off)), high = off ? load16((const void *)(at - off + 16)) : low, out;
    uint32_t all[9] = {low.v[0], low.v[1], low.v[2], low.v[3], high.v[0], high.v[1], high.v[2], high.v[3], 0};
    // without an index that is not known when it is compiled, which would put `all` into memory
    for (unsigned i = 0; i < 4; i++) {
        uint32_t a = skip == 0 ? all[i] : skip == 1 ? all[i + 1] : skip == 2 ? all[i + 2] : all[i + 3];
        uint32_t b = skip == 0 ? all[i + 1] : skip == 1 ? all[i + 2] : skip == 2 ? all[i + 3] : all[i + 4];
        out.v[i] = funnel(a, b, bits);
    }
    store16(to + u * 16, out);
}

// ---- casts of f32 to bf16 in rows of 64 bytes of the destination, 256 bytes apart ----

FN uint16_t to_bf16(uint32_t f)
{
    if ((f & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(f >> 16 | 0x40);
    return (uint16_t)((f + 0x7fff + (f >> 16 & 1)) >> 16);
}

#define THIN_ROW 32     // elements
#define THIN_APART 128  // elements from row to row of the destination

template <int EACH> // elements of a thread
FN void thin_cast(unsigned char *to, const unsigned char *from, size_t block, unsigned thread, size_t units)
{
    size_t first = (block * THREADS + thread) * EACH;
    if (first >= units * 4) // a unit is 16 bytes of the source
        return;
    uint16_t out[EACH];
    for (int i = 0; i < EACH; i += 4) {
        words16 w = load16((const uint32_t *)from + first + i);
        for (int k = 0; k < 4; k++)
            out[i + k] = to_bf16(w.v[k]);
    }
    uint16_t *at = (uint16_t *)to + first / THIN_ROW * THIN_APART + first % THIN_ROW;
    if (EACH == 8) {
        words16 w;
        memcpy(&w, out, sizeof w);
        store16(at, w);
    } else {
        memcpy(at, out, sizeof out);
    }
}

// ---- casts of f8e4m3 to f32 ----

// Exact, by integers: the value is scaled by a multiplication, which also makes subnormal numbers normal.
FN float from_e4m3(uint32_t c)
{
    uint32_t bits = (c & 0x7f) << 20;
    float f, scale;
    const uint32_t two120 = 0x7b800000;
    memcpy(&f, &bits, 4);
    memcpy(&scale, &two120, 4);
    f *= scale;
    memcpy(&bits, &f, 4);
    bits = (c & 0x7f) == 0x7f ? 0x7fc00000 : bits;
    bits |= (c & 0x80) << 24;
    memcpy(&f, &bits, 4);
    return f;
}

template <int EACH>
FN void widen_f8(unsigned char *to, const unsigned char *from, size_t block, unsigned thread, size_t units)
{
    size_t first = (block * THREADS + thread) * EACH;
    if (first >= units * 4) // a unit is 16 bytes of the destination
        return;
    for (int i = 0; i < EACH; i += 4) {
        uint32_t codes;
        words16 w;
        memcpy(&codes, from + first + i, 4);
        for (int k = 0; k < 4; k++) {
            float f = from_e4m3(codes >> 8 * k & 0xff);
            memcpy(&w.v[k], &f, 4);
        }
        store16((float *)to + first + i, w);
    }
}

// ---- the kernels ----

typedef void body(unsigned char *to, const unsigned char *from, size_t block, unsigned thread, size_t units);

template <body *BODY>
__global__ void __launch_bounds__(THREADS) run(unsigned char *to, const unsigned char *from, size_t units)
{
    BODY(to, from, blockIdx.x, threadIdx.x, units);
}

// A transpose of bf16 through shared memory. Pairs of columns are turned in registers, so that both sides move 4 bytes
// a thread; a tile has 64 by 64 elements, 65 words apart in rows of pairs.
__global__ void __launch_bounds__(THREADS) turn_pairs(uint16_t *to, const uint16_t *from, unsigned side)
{
    __shared__ uint32_t tile[64][33];
    const unsigned x = blockIdx.x * 64, y = blockIdx.y * 64;
    for (unsigned k = threadIdx.x; k < 64 * 32; k += THREADS)
        tile[k / 32][k % 32] = ((const uint32_t *)(from + (size_t)(y + k / 32) * side + x))[k % 32];
    __syncthreads();
    for (unsigned k = threadIdx.x; k < 64 * 32; k += THREADS) {
        const unsigned row = k / 32, pair = k % 32; // of the destination
        const uint32_t a = tile[2 * pair][row / 2], b = tile[2 * pair + 1][row / 2];
        ((uint32_t *)(to + (size_t)(x + row) * side + y))[pair] = __byte_perm(a, b, row % 2 ? 0x7632 : 0x5410);
    }
}

// The same with 2 bytes a thread.
__global__ void __launch_bounds__(THREADS) turn_single(uint16_t *to, const uint16_t *from, unsigned side)
{
    __shared__ uint16_t tile[64][66];
    const unsigned x = blockIdx.x * 64, y = blockIdx.y * 64;
    for (unsigned k = threadIdx.x; k < 64 * 64; k += THREADS)
        tile[k / 64][k % 64] = from[(size_t)(y + k / 64) * side + x + k % 64];
    __syncthreads();
    for (unsigned k = threadIdx.x; k < 64 * 64; k += THREADS)
        to[(size_t)(x + k / 64) * side + y + k % 64] = tile[k % 64][k / 64];
}

struct variant {
    const char *name;
    body *host;
    void (*kernel)(unsigned char *, const unsigned char *, size_t);
    int per_unit;   // units of 16 bytes of the wider side that a thread has, or 0: 16 bytes in words
    int off;        // of the source, in bytes
    double moved;   // bytes that are read and written for each 16 bytes of the wider side, as a share of 32
    int kind;       // which plain loop it is compared with: 0 copy, 1 thin cast, 2 f8
};

#define VARIANT(f) f, run<f>
static const variant variants[] = {
    {"copy, source off by 4: words (as now)", VARIANT(copy_words), 1, 4, 1, 0},
    {"copy, source off by 4: two loads, funnel", VARIANT(copy_funnel), 1, 4, 1, 0},
    {"copy, source off by 2: two loads, funnel", VARIANT(copy_funnel), 1, 2, 1, 0},
    {"copy, source off by 1: two loads, funnel", VARIANT(copy_funnel), 1, 1, 1, 0},
    {"copy, aligned: two loads, funnel", VARIANT(copy_funnel), 1, 0, 1, 0},
    {"thin cast f32 to bf16: 4 a thread", VARIANT(thin_cast<4>), 1, 0, .75, 1},
    {"thin cast f32 to bf16: 8 a thread", VARIANT(thin_cast<8>), 2, 0, .75, 1},
    {"f8e4m3 to f32: 4 a thread", VARIANT(widen_f8<4>), 1, 0, .625, 2},
    {"f8e4m3 to f32: 16 a thread", VARIANT(widen_f8<16>), 4, 0, .625, 2},
};
#define VARIANTS (sizeof variants / sizeof *variants)

static size_t blocks_of(const variant &v, size_t units)
{
    return (units + (size_t)THREADS * v.per_unit - 1) / ((size_t)THREADS * v.per_unit);
}

// ---- on the host ----

static void plain(const variant &v, unsigned char *to, const unsigned char *from, size_t units)
{
    for (size_t i = 0; i < units * 16 && v.kind == 0; i++)
        to[i] = from[i];
    for (size_t i = 0; i < units * 4 && v.kind == 1; i++)
        ((uint16_t *)to)[i / THIN_ROW * THIN_APART + i % THIN_ROW] = to_bf16(((const uint32_t *)from)[i]);
    for (size_t i = 0; i < units * 4 && v.kind == 2; i++) { // by the definition
        int c = from[i], e = c >> 3 & 15, m = c & 7;
        double f = e ? (8 + m) / 8.0 : m / 8.0;
        for (int k = e ? e : 1; k < 7; k++)
            f /= 2;
        for (int k = e; k > 7; k--)
            f *= 2;
        float out = (float)(c & 128 ? -f : f);
        uint32_t nan = 0x7fc00000u | (uint32_t)(c & 128) << 24;
        if ((c & 127) == 127)
            memcpy(&out, &nan, 4);
        memcpy(to + 4 * i, &out, 4);
    }
}

static int on_host()
{
    int wrong = 0;
    const size_t units = 5003, room = 1 << 20;
    std::vector<uint64_t> a(room / 8), b(room / 8), c(room / 8);
    uint64_t x = 1;
    for (auto &w : a)
        w = x = x * 6364136223846793005u + 1442695040888963407u;
    for (const variant &v : variants) {
        const unsigned char *from = (const unsigned char *)a.data() + 16 + v.off;
        const size_t n = v.kind ? units / 32 * 32 : units; // casts: whole rows
        std::fill(b.begin(), b.end(), 0);
        std::fill(c.begin(), c.end(), 0);
        plain(v, (unsigned char *)b.data(), from, n);
        for (size_t block = 0; block < blocks_of(v, n); block++)
            for (unsigned thread = 0; thread < THREADS; thread++)
                v.host((unsigned char *)c.data(), from, block, thread, n);
        bool same = b == c;
        wrong += !same;
        printf("%-44s %s\n", v.name, same ? "right" : "WRONG");
    }
    return wrong ? 1 : 0;
}

// ---- on the GPU ----

static void must(cudaError_t e, const char *what)
{
    if (e) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
        exit(1);
    }
}

static unsigned char *from_gpu, *to_gpu;
static cudaEvent_t begin_event, end_event;

template <class F> static double time_us(F f)
{
    float ms;
    cudaEventRecord(begin_event);
    for (int i = 0; i < 5; i++)
        f();
    cudaEventRecord(end_event);
    must(cudaEventSynchronize(end_event), "a kernel");
    cudaEventElapsedTime(&ms, begin_event, end_event);
    return ms * 1000 / 5;
}

template <class F> static void compare(const char *name, size_t bytes, F f) // bytes: read, and as many written
{
    std::vector<double> own, copy;
    for (int i = 0; i < ROUNDS; i++) {
        own.push_back(time_us(f));
        copy.push_back(time_us([&] { cudaMemcpyAsync(to_gpu, from_gpu, bytes, cudaMemcpyDeviceToDevice); }));
    }
    std::sort(own.begin(), own.end());
    std::sort(copy.begin(), copy.end());
    printf("%-44s %8.1f us  %8.1f us  %5.2f\n", name, own[ROUNDS / 2], copy[ROUNDS / 2],
           copy[ROUNDS / 2] / own[ROUNDS / 2]);
}

// Both transposes give the same bits: source[i] is i times an odd number.
static void check_turns()
{
    const unsigned side = 256;
    std::vector<uint16_t> in(side * side), out[2];
    for (unsigned i = 0; i < side * side; i++)
        in[i] = (uint16_t)(i * 40503u);
    must(cudaMemcpy(from_gpu, in.data(), in.size() * 2, cudaMemcpyHostToDevice), "copy");
    for (int k = 0; k < 2; k++) {
        out[k].resize(in.size());
        (k ? turn_pairs : turn_single)<<<dim3(side / 64, side / 64), THREADS>>>((uint16_t *)to_gpu,
                                                                              (const uint16_t *)from_gpu, side);
        must(cudaMemcpy(out[k].data(), to_gpu, in.size() * 2, cudaMemcpyDeviceToHost), "transpose");
        for (unsigned i = 0; i < side * side; i++)
            if (out[k][i] != in[i % side * side + i / side]) {
                fprintf(stderr, "a transpose is wrong\n");
                exit(1);
            }
    }
}

static int on_gpu(size_t mib)
{
    const size_t bytes = mib << 20, units = bytes / 16;
    unsigned side = 1024;
    while ((size_t)side * side * 8 <= bytes)
        side *= 2;
    must(cudaMalloc(&from_gpu, bytes + 4096), "memory");
    must(cudaMalloc(&to_gpu, 2 * bytes + 4096), "memory"); // thin rows are twice as far apart
    must(cudaMemset(from_gpu, 0x11, bytes + 4096), "memory");
    check_turns();
    cudaEventCreate(&begin_event);
    cudaEventCreate(&end_event);
    printf("%-44s %11s  %11s  %5s\n", "", "kernel", "driver", "share");
    for (const variant &v : variants)
        compare(v.name, (size_t)((double)bytes * v.moved),
                [&] { v.kernel<<<(unsigned)blocks_of(v, units), THREADS>>>(to_gpu, from_gpu + v.off, units); });
    compare("transpose of bf16: 2 bytes a thread", (size_t)side * side * 2, [&] {
        turn_single<<<dim3(side / 64, side / 64), THREADS>>>((uint16_t *)to_gpu, (const uint16_t *)from_gpu, side);
    });
    compare("transpose of bf16: pairs", (size_t)side * side * 2, [&] {
        turn_pairs<<<dim3(side / 64, side / 64), THREADS>>>((uint16_t *)to_gpu, (const uint16_t *)from_gpu, side);
    });
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "host"))
        return on_host();
    return on_gpu(argc > 1 ? (size_t)atoll(argv[1]) : 256);
}
