// Package crds embeds the CustomResourceDefinitions of our kinds, one file
// each, as generated from the types in pkg/federation/apis. The embedded
// control plane installs them at start.
package crds

import "embed"

// Files holds one YAML file for each CustomResourceDefinition.
//
//go:embed *.yaml
var Files embed.FS
