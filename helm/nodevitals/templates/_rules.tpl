{{/*
The groups of one file of files/rules with the site's values, rules.values. In: root, file. Out: YAML.
What a value changes in a rule is ready in the rule's key `site`: see helm/rules.py.
*/}}
{{- define "nodevitals.ruleGroups" -}}
{{- $values := .root.Values.rules.values -}}
{{- $text := .root.Files.Get .file
      | replace "__job.__" $values.job
      | replace "__job[.]__" ($values.job | replace "." "[.]")
      | replace "__runbook_base__" (regexReplaceAll "/+$" $values.runbook_base "") -}}
{{- $groups := (fromYaml $text).groups -}}
{{- range $group := $groups -}}
  {{- $rules := list -}}
  {{- range $rule := $group.rules -}}
    {{- if ne (include "nodevitals.changeRule" (dict "rule" $rule "values" $values)) "off" -}}
      {{- $rules = append $rules (omit $rule "site") -}}
    {{- end -}}
  {{- end -}}
  {{- $_ := set $group "rules" $rules -}}
{{- end -}}
{{- if eq (base .file) "thresholds.yaml" -}}
  {{- with (include "nodevitals.poolRules" $values | fromYamlArray) -}}
    {{- $groups = append $groups (dict "name" "nodevitals-pool-thresholds" "rules" .) -}}
  {{- end -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
{{- end -}}

{{/* Changes `rule` in place; prints `off` for an alert that the site does not want. */}}
{{- define "nodevitals.changeRule" -}}
{{- $values := .values -}}
{{- $rule := .rule -}}
{{- $site := $rule.site | default dict -}}
{{- with include "nodevitals.pooled" (dict "values" $values "thresholds" $site.thresholds) -}}
  {{- $_ := set $rule "expr" (get $site.pools .) -}}
{{- end -}}
{{- if eq ($rule.record | default "") "nodevitals:threshold" -}}
  {{- if hasKey ($values.thresholds | default dict) $rule.labels.threshold -}}
    {{- $value := get $values.thresholds $rule.labels.threshold | float64 -}}
    {{- $_ := set $rule "expr" (printf "vector(%.12g)" $value) -}}
  {{- end -}}
{{- end -}}
{{- if $rule.alert -}}
  {{- $own := printf "%s/%s" $rule.alert $site.shipped -}}
  {{- $alerts := $values.alerts | default dict -}}
  {{- $changes := get $alerts (hasKey $alerts $own | ternary $own $rule.alert) | default dict -}}
  {{- if and (hasKey $changes "enabled") (not $changes.enabled) -}}
    off
  {{- end -}}
  {{- $edit := get $site.severity ($changes.severity | default $values.profile) | default dict -}}
  {{- with $edit.expr -}}
    {{- $_ := set $rule "expr" . -}}
  {{- end -}}
  {{- with mergeOverwrite (dict) ($rule.labels | default dict) ($edit.labels | default dict) ($values.labels | default dict) ($changes.labels | default dict) -}}
    {{- $_ := set $rule "labels" . -}}
  {{- end -}}
  {{- range $key, $wait := dict "for" $changes.wait "keep_firing_for" $changes.keep_firing_for -}}
    {{- if eq ($wait | default "") "0s" -}}
      {{- $_ := unset $rule $key -}}
    {{- else if $wait -}}
      {{- $_ := set $rule $key $wait -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Those of `thresholds` that a pool has a value for, as the keys of a rule's `pools` name them. */}}
{{- define "nodevitals.pooled" -}}
{{- $names := list -}}
{{- range $threshold := .thresholds -}}
  {{- range $pool := $.values.pools -}}
    {{- if hasKey ($pool.thresholds | default dict) $threshold -}}
      {{- $names = append $names $threshold | uniq -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- join " " $names -}}
{{- end -}}

{{/* The rules that record the thresholds of pools: a list. */}}
{{- define "nodevitals.poolRules" -}}
{{- range $pool, $chosen := .pools }}
{{- range $threshold, $value := $chosen.thresholds }}
- record: nodevitals:pool_threshold
  labels: {threshold: {{ $threshold }}}
  expr: {{ printf "group by (cluster, instance) (nodevitals:node_domains{pool=%q}) * %.12g\n" $pool (float64 $value) | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What the schema cannot say. */}}
{{- define "nodevitals.checkRules" -}}
{{- $alerts := .Values.rules.values.alerts | default dict -}}
{{- $mute := get $alerts "InsideFleetIncident" | default dict -}}
{{- range $key, $changes := $alerts -}}
  {{- if and (hasPrefix "FleetIncident" $key) (hasKey $changes "enabled") (not $changes.enabled) (dig "enabled" true $mute) -}}
    {{- fail (printf "rules.values.alerts.%s.enabled: InsideFleetIncident would go on muting the alerts of its nodes: disable it as well" $key) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
