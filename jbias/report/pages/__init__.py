"""Pages of reports: each builds a `jbias.report.document.Report` from its data."""
