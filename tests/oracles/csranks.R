# Write csranks.json: confidence sets for ranks by csranks 1.2.3, the package of Mogstad, Romano,
# Shaikh and Wilhelm, with R 4.2.2 and MASS.
#
# git clone https://github.com/cran/csranks build/csranks
# Rscript tests/oracles/csranks.R build/csranks/R > tests/oracles/csranks.json

library(stats)
library(MASS)
folder <- commandArgs(trailingOnly = TRUE)[1]
files <- c("ranks", "diffmeans", "argument_checks", "rank_utils", "utilityfunctions")
for (name in files) source(file.path(folder, paste0(name, ".R")))

row <- function(x) paste0("[", paste(format(x, digits = 10, trim = TRUE), collapse = ", "), "]")

# k scores with a spread in standard errors, errors with correlation rho and unequal sizes.
case <- function(k, spread, rho) {
  x <- round(spread * (1:k + sin(3 * 1:k)), 4)
  sd <- 1 + 0.3 * cos(1:k)
  Sigma <- round(outer(sd, sd) * (rho + (1 - rho) * diag(k)), 4)
  sets <- lapply(c(TRUE, FALSE), function(simul) {
    results <- lapply(1:3, function(seed) {
      csranks(x, Sigma, simul = simul, R = 100000, seed = seed)
    })
    for (result in results) stopifnot(identical(result, results[[1]]))
    sprintf('"lower": %s, "upper": %s', row(results[[1]]$L), row(results[[1]]$U))
  })
  rows <- paste(apply(Sigma, 1, row), collapse = ",\n   ")
  sprintf('{\n  "x": %s,\n  "covariance": [\n   %s],\n  "simultaneous": {%s},\n  "marginal": {%s}}',
    row(x), rows, sets[[1]], sets[[2]])
}

cases <- c(case(2, 5, 0.5), case(2, 0.3, 0), case(5, 1, 0.2), case(8, 1.5, 0.7), case(12, 0.6, 0.3),
  case(12, 3, 0))
cat(sprintf("[%s]\n", paste(cases, collapse = ",\n ")))
