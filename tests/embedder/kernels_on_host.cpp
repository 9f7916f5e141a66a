// SPDX-License-Identifier: MIT
// The CUDA kernels of apps/embedder on the host, compared with their formulas: f32 and f16, lengths around the 64
// rows of a block and the 64 keys of a tile. Needs no GPU; tests/gpu/test_cuda_embedder.c runs them on one.
#include "emulator.h"
#include "kernels.cu"
#include <cstdio>
#include <cstdlib>

namespace
{

typedef std::vector<float> floats;
typedef std::vector<half> halves;

int failures;

double random_value()
{
    static uint64_t state = 1;
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (double)(state >> 40) / (1 << 23) - 1;
}

floats random_floats(size_t count, double scale)
{
    floats made(count);
    for (float &x : made)
        x = widen(narrow((float)(scale * random_value()))); // exact in f16 too
    return made;
}

halves narrowed(const floats &from)
{
    halves made;
    for (float x : from)
        made.push_back(narrow(x));
    return made;
}

// Compares results of both types with the expected ones.
void check(const char *name, const std::vector<double> &expected, const floats &f32, const halves &f16)
{
    double worst_f32 = 0, worst_f16 = 0;
    for (size_t i = 0; i < expected.size(); i++) {
        worst_f32 = fmax(worst_f32, fabs(expected[i] - (double)f32[i]));
        if (!f16.empty()) worst_f16 = fmax(worst_f16, fabs(expected[i] - (double)widen(f16[i])));
    }
    const bool is_right = worst_f32 < 5e-6 && worst_f16 < 4e-3;
    printf("%-10s f32 off by %.1e, f16 by %.1e%s\n", name, worst_f32, worst_f16, is_right ? "" : ": too much");
    failures += !is_right;
}

std::vector<double> norm(std::vector<double> rows, const floats &weight, const floats &bias)
{
    for (size_t start = 0; start < rows.size(); start += WIDTH) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < WIDTH; i++)
            mean += rows[start + i] / WIDTH;
        for (size_t i = 0; i < WIDTH; i++)
            variance += (rows[start + i] - mean) * (rows[start + i] - mean) / WIDTH;
        for (size_t i = 0; i < WIDTH; i++)
            rows[start + i] = (rows[start + i] - mean) / sqrt(variance) * (double)weight[i] + (double)bias[i];
    }
    return rows;
}

void check_embed()
{
    const int tokens[] = {3, 1, 2, 0, 3}, places[] = {0, 1, 0, 1, 2};
    const floats words = random_floats(4 * WIDTH, 1), table = random_floats(3 * WIDTH, 1),
                 kind = random_floats(WIDTH, 1);
    const floats weight = random_floats(WIDTH, 1), bias = random_floats(WIDTH, 1);
    const halves words_f16 = narrowed(words), table_f16 = narrowed(table);
    floats x(5 * WIDTH);
    halves x_f16(5 * WIDTH);
    std::vector<double> sums;
    for (int row = 0; row < 5; row++)
        for (int i = 0; i < WIDTH; i++)
            sums.push_back((double)words[tokens[row] * WIDTH + i] + (double)table[places[row] * WIDTH + i] +
                           (double)kind[i]);
    emulator::launch({2, 1, 1}, 128, [&] {
        embed_f32(tokens, places, 5, words.data(), table.data(), kind.data(), weight.data(), bias.data(), x.data());
    });
    emulator::launch({2, 1, 1}, 128, [&] {
        embed_f16(tokens, places, 5, words_f16.data(), table_f16.data(), kind.data(), weight.data(), bias.data(),
                  x_f16.data());
    });
    check("embed", norm(sums, weight, bias), x, x_f16);
}

void check_join()
{
    floats x = random_floats(5 * WIDTH, 1);
    const floats y = random_floats(5 * WIDTH, 1), added = random_floats(WIDTH, 1), weight = random_floats(WIDTH, 1);
    const floats bias = random_floats(WIDTH, 1);
    const halves y_f16 = narrowed(y);
    halves x_f16 = narrowed(x);
    std::vector<double> sums;
    for (size_t i = 0; i < x.size(); i++)
        sums.push_back((double)x[i] + (double)y[i] + (double)added[i % WIDTH]);
    emulator::launch({2, 1, 1}, 128,
                     [&] { join_f32(x.data(), y.data(), added.data(), 5, weight.data(), bias.data()); });
    emulator::launch({2, 1, 1}, 128,
                     [&] { join_f16(x_f16.data(), y_f16.data(), added.data(), 5, weight.data(), bias.data()); });
    check("join", norm(sums, weight, bias), x, x_f16);
}

void check_gelu()
{
    floats x = random_floats(3 * MLP, 4);
    const floats bias = random_floats(MLP, 1);
    halves x_f16 = narrowed(x);
    std::vector<double> expected;
    for (size_t i = 0; i < x.size(); i++) {
        const double z = (double)x[i] + (double)bias[i % MLP];
        expected.push_back(0.5 * z * (1 + erf(z / sqrt(2.0))));
    }
    const int blocks = (3 * MLP / 4 + 255) / 256;
    emulator::launch({blocks, 1, 1}, 256, [&] { gelu_f32(x.data(), bias.data(), 3); });
    emulator::launch({blocks, 1, 1}, 256, [&] { gelu_f16(x_f16.data(), bias.data(), 3); });
    check("gelu", expected, x, x_f16);
}

void check_pool()
{
    const int starts[] = {0, 1, 5};
    const floats x = random_floats(5 * WIDTH, 1);
    const halves x_f16 = narrowed(x);
    floats vectors(2 * WIDTH), vectors_f16(2 * WIDTH);
    std::vector<double> expected(2 * WIDTH);
    for (int sentence = 0; sentence < 2; sentence++) {
        double length = 0;
        for (int i = 0; i < WIDTH; i++) {
            double &mean = expected[sentence * WIDTH + i];
            for (int row = starts[sentence]; row < starts[sentence + 1]; row++)
                mean += (double)x[row * WIDTH + i] / (starts[sentence + 1] - starts[sentence]);
            length += mean * mean;
        }
        for (int i = 0; i < WIDTH; i++)
            expected[sentence * WIDTH + i] /= sqrt(length);
    }
    emulator::launch({2, 1, 1}, WIDTH, [&] { pool_f32(x.data(), starts, vectors.data()); });
    emulator::launch({2, 1, 1}, WIDTH, [&] { pool_f16(x_f16.data(), starts, vectors_f16.data()); });
    check("pool", expected, vectors, {});
    check("pool f16", expected, vectors_f16, {});
}

// One row of one head by the formula.
void attend_row(const floats &qkv, const floats &bias, const int *starts, int row, int head, double *mixed)
{
    std::vector<double> weights;
    double top = -INFINITY, sum = 0;
    for (int key = starts[0]; key < starts[1]; key++) {
        double score = 0;
        for (int i = head * HEAD; i < (head + 1) * HEAD; i++)
            score += ((double)qkv[row * QKV + i] + (double)bias[i]) *
                     ((double)qkv[key * QKV + WIDTH + i] + (double)bias[WIDTH + i]) / sqrt(HEAD);
        weights.push_back(score);
        top = fmax(top, score);
    }
    for (double &weight : weights)
        sum += weight = exp(weight - top);
    for (int i = head * HEAD; i < (head + 1) * HEAD; i++) {
        mixed[i] = (double)bias[2 * WIDTH + i];
        for (int key = starts[0]; key < starts[1]; key++)
            mixed[i] += weights[key - starts[0]] / sum * (double)qkv[key * QKV + 2 * WIDTH + i];
    }
}

void check_attention()
{
    enum { SENTENCES = 5, SOME_HEADS = 2 }; // the other heads stay 0
    const int starts[SENTENCES + 1] = {0, 1, 64, 128, 193, 330};
    const int rows = starts[SENTENCES];
    const floats qkv = random_floats((size_t)rows * QKV, 2), bias = random_floats(QKV, 1);
    const halves qkv_f16 = narrowed(qkv);
    floats mixed((size_t)rows * WIDTH);
    halves mixed_f16((size_t)rows * WIDTH);
    std::vector<double> expected((size_t)rows * WIDTH);
    for (int sentence = 0; sentence < SENTENCES; sentence++)
        for (int row = starts[sentence]; row < starts[sentence + 1]; row++)
            for (int head = 0; head < SOME_HEADS; head++)
                attend_row(qkv, bias, starts + sentence, row, head, expected.data() + (size_t)row * WIDTH);
    emulator::launch({35, SOME_HEADS, SENTENCES}, 128,
                     [&] { attend_f32(qkv.data(), bias.data(), starts, mixed.data()); });
    emulator::launch({3, SOME_HEADS, SENTENCES}, 128,
                     [&] { attend_f16(qkv_f16.data(), bias.data(), starts, mixed_f16.data()); });
    check("attend", expected, mixed, mixed_f16);
}

} // namespace

int main()
{
    check_embed();
    check_join();
    check_gelu();
    check_pool();
    check_attention();
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
