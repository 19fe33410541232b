"""The delay of the anonymous overlay against churn, with clusters and without: `bench layers`."""
