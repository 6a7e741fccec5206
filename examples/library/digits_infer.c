/* SPDX-License-Identifier: Apache-2.0 */
/* Example: recognises handwritten digits in C, with a network that `example_digits --save FILE` has
 * already quantized: this program never has the weights in floating point.
 *
 *   example_digits_infer FILE digits.csv
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <switchback/switchback.h>

enum { PIXELS = 64, CLASSES = 10, MAX_LAYERS = 8, MAX_WIDTH = 4096, FIRST_TEST = 1437 };

typedef struct network {
  switchback_context* context;
  switchback_linear* layers[MAX_LAYERS];
  int32_t widths[MAX_LAYERS + 1];
  int count;
} network;

static int complain(const char* what, const char* detail) {
  fprintf(stderr, "example_digits_infer: %s: %s\n", what, detail);
  return 0;
}

static void destroy(network* net) {
  for (int i = 0; i < net->count; ++i)
    switchback_linear_destroy(net->layers[i]);
  switchback_context_destroy(net->context);
}

/* Reads a layer from the network file. `header` has its first numbers: in_features, out_features,
 * mode and number of scales. The scales, the codes and the bias follow in the file. */
static int read_layer(network* net, FILE* file, const int32_t header[4], const char* name) {
  const int32_t in = header[0], out = header[1], scales = header[3];
  int ok = 0;
  float* absmax = malloc((size_t)scales * sizeof *absmax);
  int8_t* codes = malloc((size_t)in * (size_t)out);
  float* bias = malloc((size_t)out * sizeof *bias);
  switchback_linear_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.in_features = in;
  options.out_features = out;
  options.mode = header[2];
  options.dtype = SWITCHBACK_F32;
  if (absmax == NULL || codes == NULL || bias == NULL) {
    complain(name, "out of memory");
  } else if (fread(absmax, sizeof *absmax, (size_t)scales, file) != (size_t)scales ||
             fread(codes, (size_t)in, (size_t)out, file) != (size_t)out ||
             fread(bias, sizeof *bias, (size_t)out, file) != (size_t)out) {
    complain(name, "ends inside a layer");
  } else {
    const switchback_matrix q = {codes, SWITCHBACK_S8, out, in, in};
    const switchback_matrix b = {bias, SWITCHBACK_F32, 1, out, out};
    switchback_linear* layer = NULL;
    if (switchback_linear_create(net->context, &options, &layer) != SWITCHBACK_OK) {
      complain(name, switchback_last_error());
    } else {
      net->layers[net->count++] = layer;
      /* The layer copies codes, scales and bias, so they can be freed. */
      ok = switchback_linear_set_quantized_weight(layer, &q, absmax, scales, &b) == SWITCHBACK_OK ||
           complain(name, switchback_last_error());
    }
  }
  free(absmax);
  free(codes);
  free(bias);
  return ok;
}

static int read_network(network* net, const char* name) {
  static const char title[] = "switchback digits 1\n";
  char first[sizeof title] = {0};
  int32_t header[4];
  int ok = 1;
  FILE* file = fopen(name, "rb");
  if (file == NULL) return complain(name, "cannot be opened");
  if (fread(first, 1, sizeof title - 1, file) != sizeof title - 1 || strcmp(first, title) != 0)
    ok = complain(name, "is no network that example_digits --save wrote");
  net->widths[0] = PIXELS;
  while (ok && fread(header, sizeof header, 1, file) == 1) {
    if (net->count == MAX_LAYERS || header[0] != net->widths[net->count] || header[1] < 1 ||
        header[1] > MAX_WIDTH || (header[3] != 1 && header[3] != header[1])) {
      ok = complain(name, "holds a layer that does not follow the one before");
    } else {
      net->widths[net->count + 1] = header[1];
      ok = read_layer(net, file, header, name);
    }
  }
  fclose(file);
  if (ok && (net->count == 0 || net->widths[net->count] != CLASSES))
    ok = complain(name, "does not end with ten classes");
  return ok;
}

/* Returns the digit that the network sees in an image; -1 after an error. */
static int recognise(network* net, const float* image) {
  static float buffers[2][MAX_WIDTH];
  memcpy(buffers[0], image, PIXELS * sizeof *image);
  for (int i = 0; i < net->count; ++i) {
    float* from = buffers[i % 2];
    float* to = buffers[(i + 1) % 2];
    const int32_t in = net->widths[i], out = net->widths[i + 1];
    const switchback_matrix x = {from, SWITCHBACK_F32, 1, in, in};
    const switchback_matrix y = {to, SWITCHBACK_F32, 1, out, out};
    if (switchback_linear_forward(net->layers[i], &x, &y, SWITCHBACK_SAVE_NOTHING, NULL) !=
        SWITCHBACK_OK) {
      complain("forward", switchback_last_error());
      return -1;
    }
    if (i + 1 < net->count)
      for (int32_t j = 0; j < out; ++j)
        if (!(to[j] > 0.0f)) to[j] = 0.0f;
  }
  const float* scores = buffers[net->count % 2];
  int best = 0;
  for (int c = 1; c < CLASSES; ++c)
    if (scores[c] > scores[best]) best = c;
  return best;
}

/* Reads the next image and its label. Returns 1 for an image, 0 at the end of the file, -1 if a
 * line is not an image. */
static int read_image(FILE* file, float* image, int* label) {
  for (int i = 0; i < PIXELS; ++i) {
    int value;
    const int read = fscanf(file, "%d ,", &value);
    if (i == 0 && read == EOF) return 0;
    if (read != 1 || value < 0 || value > 16) return -1;
    image[i] = (float)value / 16.0f;
  }
  return fscanf(file, "%d", label) == 1 && *label >= 0 && *label < CLASSES ? 1 : -1;
}

/* Prints the percentage of the test images that the network recognises; 0 after an error. */
static int run(network* net, const char* name) {
  float image[PIXELS];
  int label = 0, read, total = 0, tested = 0, right = 0;
  FILE* file = fopen(name, "r");
  if (file == NULL) return complain(name, "cannot be opened");
  while ((read = read_image(file, image, &label)) == 1) {
    if (total++ < FIRST_TEST) continue;
    const int digit = recognise(net, image);
    if (digit < 0) break;
    ++tested;
    right += digit == label;
  }
  fclose(file);
  if (read != 0)
    return read < 0 ? complain(name, "holds a line that is no 64 pixels and a label") : 0;
  if (tested == 0) return complain(name, "holds no test images");
  printf("%d test images, accuracy %.4f %%\n", tested, 100.0 * right / tested);
  return 1;
}

int main(int argc, char** argv) {
  network net;
  switchback_context_options options;
  int ok;
  memset(&net, 0, sizeof net);
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.device = "cpu";
  if (argc != 3) {
    fprintf(stderr, "usage: example_digits_infer NETWORK digits.csv\n");
    return 2;
  }
  ok = switchback_context_create(&options, &net.context) == SWITCHBACK_OK ||
       complain("context", switchback_last_error());
  ok = ok && read_network(&net, argv[1]) && run(&net, argv[2]);
  destroy(&net);
  return ok ? 0 : 1;
}
