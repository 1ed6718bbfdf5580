package engine

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	applies  = counter("applies_total", "Writes of copies to members, by cluster and outcome.", "cluster", "outcome")
	skipped  = counter("applies_skipped_total", "Writes that were not needed, by cluster.", "cluster")
	renders  = counter("renders_total", "Copies that were made of their templates to see what is to be written, by cluster.", "cluster")
	recalled = counter("renders_skipped_total", "Copies that were not made again because nothing that goes into them has changed, by cluster.", "cluster")
	removals = counter("removals_total", "Verdicts on copies that may have to go, by cluster and verdict.", "cluster", "verdict")
	drifts   = counter("drift_total", "Copies that were changed in the member, by cluster.", "cluster")
	retries  = counter("retries_total", "Keys that are tried again, by queue.", "queue")
	refusals = counter("writes_refused_total", "Writes to members that were refused by fence or lease, by cluster.", "cluster")
	removed  = counter("removed_total", "What was taken away from members, by cluster and measure.", "cluster", "measure")
	tripped  = gauge("breaker_waiting_removals", "Removals that wait for an operator, by trip.", "trip")
	orphaned = gauge("orphans", "Copies without a template that are left alone, by cluster.", "cluster")
	held     = gauge("held", "Copies that are left alone because of isthmus.dev/hold, by cluster.", "cluster")
	fenced   = gauge("fenced", "1 while the engine refuses to write to the cluster because of its fence.", "cluster")
	silences = counter("silences_total", "Lists and watches of a member that were given up because nothing came, by cluster.", "cluster")
	writes   = counter("control_plane_writes_total", "Writes to the control plane, by what is written.", "object")
)

func counter(name, help string, labels ...string) *metrics.CounterVec {
	c := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "isthmus", Subsystem: "federation", Name: name, Help: help,
		StabilityLevel: metrics.ALPHA,
	}, labels)
	legacyregistry.MustRegister(c)
	return c
}

func gauge(name, help string, labels ...string) *metrics.GaugeVec {
	g := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "isthmus", Subsystem: "federation", Name: name, Help: help,
		StabilityLevel: metrics.ALPHA,
	}, labels)
	legacyregistry.MustRegister(g)
	return g
}
