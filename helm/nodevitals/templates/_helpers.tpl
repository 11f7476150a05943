{{/* Names. All objects of a release start with nodevitals.fullname. */}}
{{- define "nodevitals.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Without dots, which names of Services may not have. */}}
{{- define "nodevitals.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "nodevitals.name" .) .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "nodevitals.name" .) | replace "." "-" | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Cluster-scoped objects: two releases of one name in two namespaces must not share them. */}}
{{- define "nodevitals.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "nodevitals.fullname" .) -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "nodevitals.labels" -}}
{{- include "nodevitals.labelsAnd" (list . dict) -}}
{{- end -}}

{{/*
Those, and others of the object. In: list $ OTHERS. Each key once, or kustomize refuses the object;
nothing changes what selectors select.
*/}}
{{- define "nodevitals.labelsAnd" -}}
{{- $root := first . -}}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")
      "app.kubernetes.io/version" $root.Chart.AppVersion
      "app.kubernetes.io/managed-by" $root.Release.Service
      "app.kubernetes.io/part-of" "nodevitals" -}}
{{- $selector := include "nodevitals.selectorLabels" $root | fromYaml -}}
{{- toYaml (mergeOverwrite $labels ($root.Values.commonLabels | default dict) (last . | default dict) $selector) -}}
{{- end -}}

{{/* What Services, monitors and policies select: the agents of this release, on all kinds of nodes. */}}
{{- define "nodevitals.selectorLabels" -}}
app.kubernetes.io/name: {{ include "nodevitals.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "nodevitals.agentLabels" -}}
{{ include "nodevitals.selectorLabels" . }}
app.kubernetes.io/component: agent
{{- end -}}
