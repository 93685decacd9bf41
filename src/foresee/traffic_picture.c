#include "foresee/traffic_picture.h"

#include <inttypes.h>

#include "tool/readable.h"

#define SIDE 512.0 /* of the square that all pairs are in */
#define MARGIN 48.0
#define BELOW 40.0 /* for the scale */
#define SHADES 8
#define LABEL 14.0 /* the least distance of two numbers */
#define BLUE "#2f74c0"

/* From nearly white to full: also a pair with few bytes can be seen. */
static double shade(double part)
{
    return 0.15 + 0.85 * part;
}

static void print_numbers(FILE *to, int ranks, double cell)
{
    int step = 1;
    while (step * cell < LABEL)
        step *= 2;
    for (int r = 0; r < ranks; r += step) {
        double middle = (r + 0.5) * cell;
        fprintf(to, "<text x=\"%.1f\" y=\"-4\" text-anchor=\"middle\">%d</text>\n", middle, r);
        fprintf(to, "<text x=\"-4\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n", middle + 4, r);
    }
}

static void print_scale(FILE *to, int64_t most)
{
    char text[64];
    for (int i = 0; i < SHADES; i++)
        fprintf(to,
                "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"8\" fill=\"" BLUE "\" fill-opacity=\"%.2f\"/>\n",
                i * SIDE / SHADES, SIDE + 8, SIDE / SHADES, shade((i + 1.0) / SHADES));
    fprintf(to, "<text x=\"0\" y=\"%.0f\">0 B</text>\n", SIDE + 30);
    fprintf(to, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", SIDE, SIDE + 30,
            readable_bytes(most, text, sizeof text));
}

void traffic_picture_print(FILE *to, const struct traffic *pairs, size_t n, int ranks, const char *about)
{
    double cell = SIDE / ranks;
    int64_t most = 1;
    for (size_t i = 0; i < n; i++)
        most = pairs[i].bytes > most ? pairs[i].bytes : most;
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"%.0f %.0f %.0f %.0f\" font-family=\"sans-serif\" "
            "font-size=\"11\" fill=\"currentColor\" role=\"img\" aria-label=\"%s\">\n",
            -MARGIN, -MARGIN, SIDE + 2 * MARGIN, SIDE + MARGIN + BELOW, about);
    fprintf(to, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#888\" fill-opacity=\"0.1\"/>\n", SIDE, SIDE);
    for (size_t i = 0; i < n; i++)
        if (pairs[i].bytes)
            fprintf(to,
                    "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"" BLUE
                    "\" fill-opacity=\"%.2f\"><title>%d to %d: %" PRId64 " B</title></rect>\n",
                    pairs[i].to * cell, pairs[i].from * cell, cell, cell, shade((double)pairs[i].bytes / (double)most),
                    pairs[i].from, pairs[i].to, pairs[i].bytes);
    print_numbers(to, ranks, cell);
    fprintf(to, "<text x=\"%.0f\" y=\"%.0f\">from \xe2\x86\x93 to \xe2\x86\x92</text>\n", 4 - MARGIN, 14 - MARGIN);
    print_scale(to, most);
    fprintf(to, "</svg>\n");
}
