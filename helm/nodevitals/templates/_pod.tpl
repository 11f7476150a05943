{{/*
The pod of one entry of `nodes`. In: dict "root" $ "name" NAME "entry" ENTRY.
No mount of the node is private: one that comes, goes or hangs there does so here.
*/}}
{{- define "nodevitals.pod" -}}
{{- $values := .root.Values -}}
{{- $entry := .entry -}}
serviceAccountName: {{ include "nodevitals.serviceAccountName" .root }}
automountServiceAccountToken: {{ $values.rbac.create }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $entry.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $entry.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if $entry.hostPID }}
hostPID: true
{{- end }}
{{- if $entry.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $entry.terminationGracePeriodSeconds }}
{{- with $entry.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $entry.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $entry.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- if $entry.runAsUser }}
  runAsNonRoot: true
  {{- end }}
  runAsUser: {{ int64 $entry.runAsUser }}
  runAsGroup: {{ int64 $entry.runAsGroup }}
  {{- with $entry.supplementalGroups }}
  supplementalGroups:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  seccompProfile:
    type: {{ $entry.seccomp }}
  {{- with $entry.seLinuxOptions }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $entry.appArmor }}
  appArmorProfile:
    type: {{ . }}
  {{- end }}
{{- with $entry.extraInitContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - {{- include "nodevitals.container" . | nindent 4 }}
  {{- with $entry.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  {{- include "nodevitals.volumes" . | nindent 2 }}
{{- end -}}

{{- define "nodevitals.container" -}}
{{- $values := .root.Values -}}
{{- $entry := .entry -}}
{{- $web := $values.agent.web -}}
name: nodevitals
image: {{ include "nodevitals.image" (dict "repository" $values.image.repository "digest" $values.image.digest "tag" (default .root.Chart.AppVersion $values.image.tag)) }}
imagePullPolicy: {{ $values.image.pullPolicy }}
command: [nodevitals]
args:
  - serve
  - --config.file=/etc/nodevitals/nodevitals.yaml
  - --path.rootfs=/host
  - --path.procfs=/host/proc
  - --path.sysfs=/host/sys
  - --web.listen-address=:{{ $values.agent.port }}
  {{- with $web.secret }}
  - --web.config.file=/etc/nodevitals-web/web-config.yaml
  {{- end }}
  - --log.level={{ $values.agent.logLevel }}
  - --log.format={{ $values.agent.logFormat }}
  {{- with $entry.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  # Of the kubelet.
  - name: HOST_IP
    valueFrom:
      fieldRef:
        fieldPath: status.hostIP
  {{- range $name, $value := $entry.env }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
  {{- with $entry.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: metrics
    containerPort: {{ $values.agent.port }}
  {{- if $entry.fabric }}
  - name: fabric
    containerPort: 9856
  {{- end }}
{{- with $entry.livenessProbe }}
livenessProbe:
  {{- include "nodevitals.httpProbe" (dict "path" "/healthz" "tls" $web.tls "probe" .) | nindent 2 }}
{{- end }}
{{- /* Not /readyz: an agent with a probe that hangs since its start is to be scraped. */}}
{{- with $entry.readinessProbe }}
readinessProbe:
  {{- include "nodevitals.httpProbe" (dict "path" "/healthz" "tls" $web.tls "probe" .) | nindent 2 }}
{{- end }}
{{- with $entry.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  readOnlyRootFilesystem: true
  {{- if $entry.privileged }}
  privileged: true
  {{- else }}
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
    {{- with $entry.capabilities }}
    add:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- end }}
volumeMounts:
  - {name: config, mountPath: /etc/nodevitals, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  {{- if ne $entry.state.type "none" }}
  - {name: state, mountPath: /var/lib/nodevitals}
  {{- end }}
  {{- range $index, $path := $entry.hostPaths }}
  - name: host-{{ $index }}
    mountPath: {{ printf "/host%s" (trimSuffix "/" $path) }}
    readOnly: true
    mountPropagation: HostToContainer
  {{- end }}
  {{- range tuple "proc" "sys" }}
  - name: {{ . }}
    mountPath: /host/{{ . }}
    readOnly: true
    mountPropagation: HostToContainer
  {{- end }}
  {{- range $index, $mount := $entry.hostMounts }}
  - name: mount-{{ $index }}
    mountPath: {{ default $mount.path $mount.mountPath }}
    readOnly: {{ ne (toString $mount.readOnly) "false" }}
    mountPropagation: HostToContainer
  {{- end }}
  {{- if $entry.kubeletDirectory }}
  - name: pod-resources
    mountPath: /var/lib/kubelet/pod-resources
    readOnly: true
    mountPropagation: HostToContainer
  {{- end }}
  {{- if $web.secret }}
  - {name: web, mountPath: /etc/nodevitals-web, readOnly: true}
  {{- end }}
  {{- if $entry.fabric }}
  - {name: fabric, mountPath: /etc/nodevitals-fabric, readOnly: true}
  - {name: token, mountPath: /etc/nodevitals-token, readOnly: true}
  {{- if $values.hub.enabled }}
  - {name: hub-token, mountPath: /etc/nodevitals-hub-token, readOnly: true}
  {{- end }}
  {{- end }}
  {{- with $entry.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "nodevitals.volumes" -}}
{{- $values := .root.Values -}}
{{- $entry := .entry -}}
{{- $fullname := include "nodevitals.fullname" .root -}}
- name: config
  configMap:
    name: {{ $fullname }}-{{ .name }}
- name: tmp
  emptyDir: {sizeLimit: {{ $entry.tmpSizeLimit }}}
{{- if eq $entry.state.type "hostPath" }}
- name: state
  hostPath: {path: {{ $entry.state.path }}, type: DirectoryOrCreate}
{{- else if eq $entry.state.type "emptyDir" }}
- name: state
  emptyDir: {sizeLimit: {{ $entry.state.sizeLimit }}}
{{- end }}
{{- range $index, $path := $entry.hostPaths }}
- name: host-{{ $index }}
  hostPath: {path: {{ $path }}}
{{- end }}
{{- range tuple "proc" "sys" }}
- name: {{ . }}
  hostPath: {path: /{{ . }}}
{{- end }}
{{- range $index, $mount := $entry.hostMounts }}
- name: mount-{{ $index }}
  hostPath: {path: {{ $mount.path }}, type: {{ default "" $mount.type | quote }}}
{{- end }}
{{- with $entry.kubeletDirectory }}
- name: pod-resources
  hostPath: {path: {{ . }}/pod-resources, type: Directory}
{{- end }}
{{- with $values.agent.web.secret }}
- name: web
  secret: {secretName: {{ . }}}
{{- end }}
{{- if $entry.fabric }}
- name: fabric
  secret: {secretName: {{ include "nodevitals.fabricSecret" $.root }}, defaultMode: 0400}
- name: token
  secret: {secretName: {{ include "nodevitals.tokenSecret" $.root }}, defaultMode: 0400}
{{- if $values.hub.enabled }}
- name: hub-token
  secret: {secretName: {{ include "nodevitals.hubTokenSecret" $.root }}, defaultMode: 0400}
{{- end }}
{{- end }}
{{- with $entry.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
