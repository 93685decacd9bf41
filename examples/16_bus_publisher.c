/* One of two programs that are started apart, in any order, and share a URL alone: it publishes versions of a tensor,
 * which 16_bus_subscriber follows. In one terminal `16_bus_publisher file:/tmp/run42`, in another one
 * `16_bus_subscriber file:/tmp/run42`. Either may be killed and started again. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weft/bus.h>

#define ROWS 48
#define COLUMNS 64

static void must(int err)
{
    if (err) {
        fprintf(stderr, "%s\n", weft_errmsg());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "file:/tmp/weft-run42";
    int64_t steps = argc > 2 ? atoll(argv[2]) : 100;
    static float grid[ROWS][COLUMNS];
    char meta[64];
    weft_bus *bus;
    weft_layout *layout;
    weft_publisher *publisher;
    weft_view view = WEFT_VIEW(grid, sizeof grid);
    must(weft_bus_open(url, NULL, &bus));
    must(weft_layout_parse("bf16[48,64] @x1", &layout)); /* what readers see */
    weft_bus_tensor tensor = {.name = "grid", .layout = layout, .dtype = WEFT_F32};
    must(weft_publish(bus, "field", &tensor, 1, NULL, &publisher));
    weft_layout_free(layout);
    for (int64_t step = 1; step <= steps; step++) {
        for (int i = 0; i < ROWS * COLUMNS; i++)
            grid[i / COLUMNS][i % COLUMNS] = (float)((step + i) % 200);
        /* The copy is cast to bf16. WEFT_EBUSY: readers have all versions that are kept; this step is left out. */
        int err = weft_put(publisher, step, &view);
        snprintf(meta, sizeof meta, "{\"step\": %lld}", (long long)step);
        if (err != WEFT_EBUSY)
            must(err ? err : weft_commit(publisher, step, meta, NULL));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    printf("published %lld steps in epoch %lld; end of input ends it\n", (long long)steps,
           (long long)weft_publisher_epoch(publisher));
    fflush(stdout);
    while (getchar() != EOF) /* its versions live as long as it does */
        ;
    weft_publisher_close(publisher);
    must(weft_bus_close(bus));
    return 0;
}
